"""One thread that does what it is given, in order: the only one that ever calls the head that it has loaded.

Knows nothing of streams and results, nor where the head computes but for its CUDA stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import torch

from scorers.placed import Here, PlacedHead

_LEAVING_SECONDS = 5.0


class NotDone(Exception):  # noqa: N818 - says what became of a task
    """The thread did not do something, or not in time."""


@dataclass(frozen=True)
class _Task:
    """Something to do, and where its outcome goes. `tidies`: it takes up no room, and is done even when leaving."""

    work: Callable[[], Any]
    tidies: bool = False
    answer: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        try:
            self.answer.set_result(self.work())
        except BaseException as error:
            self.answer.set_exception(error)


class HeadThread:
    """See above. It is a daemon, so a head that hangs does not keep the program from ending.

    A head that is in the middle of C++ code when the interpreter is taken down may crash it: a program that must end
    with its own exit code while `leave` has waited in vain ends with `os._exit`.

    Attributes:
        loaded: the head to come, or what `load` raised.
        interrupt: makes a task that hangs come back, where that can be done.
    """

    def __init__(self, load: Callable[[], PlacedHead], interrupt: Callable[[], None], queue: int) -> None:
        self.loaded: Future[PlacedHead] = Future()
        self.interrupt = interrupt
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._room = threading.Semaphore(queue)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(load,), name="head", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], Any], due: float) -> Future[Any]:
        """Have something done; its outcome is `NotDone` when the queue had no room for it until `due`."""
        task = _Task(work)
        if not self._room.acquire(timeout=max(0.0, due - time.monotonic())):
            task.answer.set_exception(NotDone("its queue was full until the deadline"))
        elif self._leaving.is_set():
            task.answer.set_exception(NotDone("it is closed"))
        else:
            self._tasks.put(task)
        return task.answer

    def tidy(self, work: Callable[[], Any]) -> None:
        """Have something closed, which always finds room and is not dropped; nobody hears of its outcome."""
        self._tasks.put(_Task(work, tidies=True))

    def leave(self) -> None:
        """End what is being done if that is possible, drop what waits, and end the thread."""
        self._leaving.set()
        self.interrupt()
        self._tasks.put(None)
        if threading.current_thread() is not self._thread:  # a finalizer may run anywhere
            self._thread.join(_LEAVING_SECONDS)

    def _serve(self, load: Callable[[], PlacedHead]) -> None:
        with ExitStack() as working:
            try:
                head = load()
                working.enter_context(_computing(head))
            except BaseException as error:
                self.loaded.set_exception(error)
                return
            self.loaded.set_result(head)
            while (task := self._tasks.get()) is not None:
                if not task.tidies:
                    self._room.release()
                if self._leaving.is_set() and not task.tidies:
                    task.answer.set_exception(NotDone("it is closed"))
                else:
                    task.run()
                del task  # it holds a stream, which holds the head's owner
            head.close()


@contextmanager
def _computing(head: PlacedHead) -> Iterator[None]:
    """Inference, and for a head on a GPU a CUDA stream of its own."""
    with torch.inference_mode():
        if isinstance(head, Here) and head.head.device.type == "cuda":
            torch.cuda.synchronize(head.head.device)  # its weights came on the stream that everyone uses
            with torch.cuda.stream(torch.cuda.Stream(head.head.device)):  # type: ignore[no-untyped-call]
                yield
        else:
            yield


def done_in_time(answer: Future[Any], due: float | None) -> bool:
    """Wait for an outcome until `due`, on the monotonic clock, or for as long as it takes."""
    return bool(wait([answer], None if due is None else max(0.0, due - time.monotonic())).done)
