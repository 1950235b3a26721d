"""Speed and memory of reward heads on this machine: batching, a step of each head, where heads run, and leaks.

Measures and returns records; how they are shown is the command's affair. Nothing here says what is fast enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import numpy as np
import soxr
import torch

from experiments.bench.heads import Candidate, Speech, Step, every_kind, installed, speak
from experiments.bench.timing import Memory, Row, Table, Timing, timed, watched
from scorers.heads import Clip, ClipHead
from scorers.placed import Here, PlacedHead
from scorers.rereader import Rereader
from scorers.worker import InProcess, InThread

PREFIX_SECONDS = 3.0
STEP_SECONDS = (1.0, PREFIX_SECONDS, 10.0)


@dataclass(frozen=True)
class Plan:
    """How much is measured: timed runs of everything, and calls under which memory is watched."""

    runs: int
    calls: int


FULL = Plan(runs=5, calls=500)
QUICK = Plan(runs=2, calls=20)


def bench_scorers(specs: Sequence[str], device: str, plan: Plan, note: Callable[[str], object]) -> list[Table]:
    """Measure the heads of these specs, or all kinds if there are none; `note` is told what is being done.

    Tables: "batching" (of Whisper, if it is among them), "steps", "places", "memory", and "left_out".

    Raises:
        ValueError: none of the heads loads.
    """
    heads, left_out = installed(specs or every_kind(), device)
    if not heads:
        raise ValueError("; ".join(left_out.values()))
    note("speaking")
    speech = speak()
    tables = []
    for head in heads:
        if head.spec.partition(":")[0] == "whisper":
            note("batches")
            tables.append(batching(head, speech, plan.runs))
    taken = {}
    for head in heads:
        note(f"steps of {head.spec}")
        taken[head.spec] = step_timings(head, speech, plan.runs)
    rows: list[Row] = [
        {"head": spec, "audio_seconds": seconds, **timing.row()}
        for spec, timings in taken.items()
        for seconds, timing in timings.items()
    ]
    tables.append(Table("steps", "A step of 8 rows that adds 0.8 s", rows))
    note("places")
    slowest_first = sorted(heads, key=lambda head: -taken[head.spec][PREFIX_SECONDS].median_ms)
    tables.append(places(slowest_first, speech, plan.runs))
    rows = []
    for head in heads:
        note(f"memory of {head.spec}")
        rows.append({"head": head.spec, **memory(head, speech, plan.calls).row()})
    tables.append(Table("memory", "Resident memory over calls of a step of one row at 3 s", rows))
    missing: list[Row] = [{"head": spec, "why": why} for spec, why in left_out.items()]
    return [*tables, Table("left_out", "Heads that did not load", missing)]


def batching(candidate: Candidate, speech: Speech, runs: int) -> Table:
    """Whisper on 8 prefixes of 3 s: in one batch, one by one, and by as many calls of faster-whisper's `transcribe`.

    Those decode greedily and without timestamps too, on the same weights and threads, but pad to 30 s.
    """
    from faster_whisper import WhisperModel

    from scorers.whisper.weights import folder_of

    scorer = candidate.load()
    assert isinstance(scorer, Rereader), "whisper hears everything again"
    head: ClipHead = scorer.head
    rate, prepared = head.sample_rate, head.prepare(speech.request)
    heard = [
        soxr.resample(row, speech.sample_rate, rate).astype(np.float32) for row in speech.first(PREFIX_SECONDS).numpy()
    ]
    clips = [Clip(pcm, 0, False, prepared) for pcm in heard]
    cpu = head.device.type == "cpu"
    model = WhisperModel(
        str(folder_of(candidate.spec.partition(":")[2] or "base")),
        device=head.device.type,
        device_index=head.device.index or 0,
        compute_type="int8" if cpu else "float16",
        cpu_threads=1,
    )

    def transcribe() -> None:
        for pcm in heard:
            segments, _ = model.transcribe(
                pcm, language="en", beam_size=1, without_timestamps=True, condition_on_previous_text=False
            )
            list(segments)

    found = {
        "one batch": timed(lambda: head.judge(clips), runs),
        "one by one": timed(lambda: [head.judge([clip]) for clip in clips], runs),
        "8 transcribe calls": timed(transcribe, runs),
    }
    return Table("batching", "8 prefixes of 3 s heard by Whisper", _compared(found))


def step_timings(candidate: Candidate, speech: Speech, runs: int) -> dict[float, Timing]:
    """A step of 8 rows that adds 0.8 s, by the seconds that the rows have then."""
    head = Here(candidate.load())
    found = {}
    for seconds in STEP_SECONDS:
        with closing(Step([head], speech, seconds)) as step:
            found[seconds] = timed(step.run, runs, step.prepare)
    return found


def places(candidates: Sequence[Candidate], speech: Speech, runs: int) -> Table:
    """A step of all heads at 3 s: in a row, each in a thread, and the first 1, 2, ... of them in processes.

    At most as many processes as there are cores, with one torch thread each; the heads that stay run in a row.
    """
    here: list[PlacedHead] = [Here(candidate.load()) for candidate in candidates]
    torch_threads = torch.get_num_threads()
    with ExitStack() as closing_all:

        def measure(heads: Sequence[PlacedHead]) -> Timing:
            with closing(Step(heads, speech, PREFIX_SECONDS)) as step:
                return timed(step.run, runs, step.prepare)

        found = {f"in a row, torch threads: {torch_threads}": measure(here)}
        if torch_threads > 1:
            with one_torch_thread():
                found["in a row, torch threads: 1"] = measure(here)
        threads = [closing_all.enter_context(closing(InThread(one.load))) for one in candidates]
        found[f"threads: {len(threads)}"] = measure(threads)
        processes: list[PlacedHead] = []
        for candidate in candidates[: cores()]:
            processes.append(closing_all.enter_context(closing(InProcess(candidate.load))))
            found[f"processes: {len(processes)}"] = measure([*processes, *here[len(processes) :]])
    names = ", ".join(candidate.spec for candidate in candidates)
    return Table("places", f"A step of 8 rows at 3 s by all heads, slowest first: {names}", _compared(found))


def _compared(found: dict[str, Timing]) -> list[Row]:
    """Rows with the ratio of each median to the first one's."""
    first = next(iter(found.values())).median_ms
    return [{"how": how, **timing.row(), "ratio": timing.median_ms / first} for how, timing in found.items()]


def memory(candidate: Candidate, speech: Speech, calls: int) -> Memory:
    """Resident memory over calls of a step of one row at 3 s, each in a stream of its own."""
    with closing(Step([Here(candidate.load())], speech, PREFIX_SECONDS, rows=1)) as step:

        def call() -> None:
            step.prepare()
            step.run()

        return watched(call, calls)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
