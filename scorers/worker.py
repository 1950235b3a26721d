"""Heads beside each other and beside the engine: each in a thread of its own, or in a process that its thread awaits.

A search hands its messages over and goes on; the thread takes them in their order. With `head_thread.py` this is all
that knows concurrency: queues, deadlines, and what has to be copied. It knows nothing of what a head hears.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from scorers.child import ChildHead
from scorers.head_thread import HeadThread, NotDone, done_in_time
from scorers.heads import Head
from scorers.placed import HeadError, Here, PlacedHead, PlacedStream
from search.protocols import Scores
from search.request import SpeechRequest

DEADLINE_SECONDS = 60.0
QUEUE = 16


class Away:
    """A `PlacedHead` that only its own thread ever calls. What `InThread` and `InProcess` share; see there."""

    def __init__(
        self, load: Callable[[], PlacedHead], interrupt: Callable[[], None], deadline_seconds: float | None, queue: int
    ) -> None:
        self.deadline_seconds = DEADLINE_SECONDS if deadline_seconds is None else deadline_seconds
        _check(deadline_seconds=self.deadline_seconds, queue=queue)
        self.thread = HeadThread(load, interrupt, queue)
        self._leave = weakref.finalize(self, self.thread.leave)
        try:
            # No deadline: loading may fetch or convert weights, and Ctrl-C ends the wait.
            self._placed = head = self.thread.loaded.result()
        except BaseException:
            self.close()
            raise
        self.name, self.terms, self.rereads = head.name, head.terms, head.rereads
        self.pinned = isinstance(head, Here) and head.head.device.type == "cuda"

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> AwayStream:
        """The head's stream; raises what the head raises, or `HeadError` when it does not answer in time."""
        due = self.due()
        answer = self.thread.put(lambda: self._placed.open(list(requests), n, sample_rate, hop), due)
        return AwayStream(self, self._outcome(answer, due, "no stream was opened"))

    def close(self) -> None:
        """Drop what waits and give the thread back; one whose head does not return ends by itself when it does."""
        self._leave()

    def due(self) -> float:
        """When what is asked now must have been answered, on the monotonic clock."""
        return time.monotonic() + self.deadline_seconds

    def late(self, what: str) -> NotDone:
        """The failure of something that was not done by its deadline; what hangs is ended where that is possible."""
        self.thread.interrupt()
        return NotDone(f"{what} within {self.deadline_seconds:g} s, its deadline")

    def _outcome(self, answer: Future[Any], due: float | None, otherwise: str = "") -> Any:
        if not done_in_time(answer, due):
            answer.add_done_callback(_close_unwanted)
            raise _named(self.name, self.late(otherwise))
        try:
            return answer.result()
        except NotDone as error:
            raise _named(self.name, error) from None


class InThread(Away):
    """A head that one thread loads and calls, on a CUDA stream of its own where it computes on a GPU.

    Searches that overlap have a stream each. A head that takes too long cannot be stopped: until it has returned, no
    other stream can be opened.

    Args:
        load: makes the head; what it raises is raised here.
        deadline_seconds: how long it may take to open a stream, to find room in the queue, and from `begin` to the
            result; None is 60. A stream that has been late is failed, as what it remembers may be behind, and its
            answer is dropped.
        queue: messages that may wait.

    Raises:
        ValueError: a deadline or a queue that is not above 0.
    """

    def __init__(self, load: Callable[[], Head], *, deadline_seconds: float | None = None, queue: int = QUEUE) -> None:
        super().__init__(lambda: Here(load()), lambda: None, deadline_seconds, queue)


class InProcess(Away):
    """A head in a child process: what it does to its interpreter, its memory or itself happens there.

    A child that has died, or was ended because an answer was late, is replaced when the next stream is opened. All
    streams of the head end with their child.

    Args:
        load: makes the head, in the child; it is sent there by name, so it must stand at the top of a module.
        deadline_seconds, queue: as for `InThread`.
        threads: that torch and OpenMP may use in the child. Results are the same as here, bit for bit, where torch
            uses as many here.

    Raises:
        ValueError: a deadline, a queue or a number of threads that is not above 0.
        TypeError: `load` cannot be sent.
        HeadError: the child died before its head was loaded.
    """

    def __init__(
        self,
        load: Callable[[], Head],
        *,
        deadline_seconds: float | None = None,
        queue: int = QUEUE,
        threads: int = 1,
    ) -> None:
        _check(threads=threads)
        self._child = ChildHead(load, threads)
        super().__init__(self._child.start, self._child.kill, deadline_seconds, queue)

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> AwayStream:
        """The head's stream, in a new child where the last one has died; raises as `InThread.open` does."""
        due = self.due()
        self._outcome(self.thread.put(lambda: None, due), due, "nothing was done")
        self._outcome(self.thread.put(self._child.start, due), None)  # it may have to load the head again
        return super().open(requests, n, sample_rate, hop)


class AwayStream:
    """A stream whose messages wait for the head's thread. Once it has failed it stays failed."""

    def __init__(self, head: Away, stream: PlacedStream) -> None:
        self._head, self._stream = head, stream
        self._answer: Future[Scores] | None = None
        self._due = 0.0
        self._failure: BaseException | None = None

    def begin(self, pcm: Tensor, lengths: Tensor, finished: Tensor, wanted: Tensor | None = None) -> None:
        assert self._answer is None, "begin follows the result of the one before"
        new, count, over = self._own(pcm), self._own(lengths), self._own(finished)
        asked = None if wanted is None else self._own(wanted)

        def judge() -> Scores:
            self._stream.begin(new, count, over, asked)
            return _copied(self._stream.result())

        self._due = self._head.due()
        self._answer = self._send(judge)

    def result(self) -> Scores:
        answer, self._answer = self._answer, None
        assert answer is not None, "result follows begin"
        if self._failure is None and not done_in_time(answer, self._due):
            self._failure = self._head.late("no result came")
        failure = self._failure or answer.exception()
        if failure is not None:
            raise _named(self._head.name, failure)
        return answer.result()

    def fork(self, parents: Tensor) -> None:
        rows = self._own(parents)
        self._send(lambda: self._stream.fork(rows))

    def commit(self, frames: Tensor) -> None:
        count = self._own(frames)
        self._send(lambda: self._stream.commit(count))

    def close(self) -> None:
        """Drop what waits; the head's own stream is closed as soon as its thread comes by."""
        self._failure = self._failure or NotDone("the stream is closed; open a new one")
        self._head.thread.tidy(self._stream.close)

    def _send(self, work: Callable[[], Any]) -> Future[Any]:
        """Have it done after all that was sent before, unless some of that fails."""
        if self._failure is not None:
            return Future()

        def attempt() -> Any:
            if self._failure is None:
                try:
                    return work()
                except BaseException as error:
                    self._failure = error
            return None

        answer = self._head.thread.put(attempt, self._head.due())
        if answer.done():
            self._failure = self._failure or answer.exception()
        return answer

    def _own(self, tensor: Tensor) -> Tensor:
        """A copy on the host, as the search goes on with its tensors; pinned for a head on a GPU."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._head.pinned).copy_(tensor)


def _copied(scores: Scores) -> Scores:
    """On the host, and apart from what the head goes on with."""
    heads = {name: term.to("cpu", copy=True) for name, term in scores.heads.items()}
    return Scores(scores.reward.to("cpu", copy=True), heads, scores.notes)


def _close_unwanted(answer: Future[Any]) -> None:
    """A stream that was opened too late."""
    if answer.exception() is None and answer.result() is not None:
        answer.result().close()


def _named(head: str, failure: BaseException) -> HeadError:
    """What a caller gets for a failure, which may be told many times."""
    if isinstance(failure, HeadError):
        error = HeadError(str(failure))
    elif isinstance(failure, NotDone):
        error = HeadError(f"{head}: {failure}")
    else:
        error = HeadError(f"{head}: {type(failure).__name__}: {failure}")
    error.__cause__ = failure.__cause__ or failure
    return error


def _check(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name}: {number!r}; it must be above 0")
