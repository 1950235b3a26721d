"""Jobs on processes of this machine, each with engines and scorers of its own. Knows nothing of what a job does.

A process that dies costs the units that it was speaking, and is replaced. Processes end when the parent does, however
it does.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from experiments.sweep.store import RunStore
from experiments.sweep.work import Ended, Job, died, work


def run_locally(folder: Path, jobs: Sequence[Job], workers: int) -> Iterator[Ended]:
    """Do the jobs in their order, `workers` at a time; yields units as they end."""
    waiting = list(jobs)[::-1]
    slots = [_process() for _ in range(min(workers, len(waiting)))]
    running: dict[Future[list[Ended]], tuple[int, Job]] = {}
    try:
        while waiting or running:
            busy = {slot for slot, _ in running.values()}
            for slot in range(len(slots)):
                if slot not in busy and waiting:
                    job = waiting.pop()
                    running[_submitted(slots, slot, folder, job)] = (slot, job)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                slot, job = running.pop(future)
                try:
                    yield from future.result()
                except BrokenProcessPool:
                    _replace(slots, slot)
                    yield from died(RunStore.open(folder), job, "its process died; out of memory, or killed")
    finally:
        for process in slots:
            _stop(process)


def _submitted(slots: list[ProcessPoolExecutor], slot: int, folder: Path, job: Job) -> Future[list[Ended]]:
    try:
        return slots[slot].submit(work, folder, job)
    except BrokenProcessPool:  # it died while it had nothing to do, so no unit is lost
        _replace(slots, slot)
        return slots[slot].submit(work, folder, job)


def _replace(slots: list[ProcessPoolExecutor], slot: int) -> None:
    slots[slot].shutdown(wait=False)
    slots[slot] = _process()


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),))


def _begin(parent: int) -> None:
    """Leave Ctrl-C to the parent, use one thread, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End a process now; what it was doing is not waited for."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
