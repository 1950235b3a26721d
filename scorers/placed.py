"""Heads as a reward sees them: begun, then asked for their result, wherever they run.

`Here` runs a head in a row with the others. Knows nothing of threads, processes and deadlines: see `worker.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from scorers.heads import Head, Term
from scorers.rereader import RereadingStream
from search.protocols import ScorerStream, Scores, Stream
from search.request import SpeechRequest


class HeadError(RuntimeError):
    """A head has no result: it raised, died, or did not answer in time. The message names the head and the cause."""


class PlacedStream(Stream, Protocol):
    """What a head remembers of every row, here or elsewhere."""

    def begin(self, pcm: Tensor, lengths: Tensor, finished: Tensor, wanted: Tensor | None = None) -> None:
        """Let the head hear new samples and judge; the arguments of `ScorerStream.score`.

        Rows that are False in `wanted` (bool [R]) are heard but not judged; only heads that re-read can leave rows out.
        """

    def result(self) -> Scores:
        """What was begun, once for every `begin`; `HeadError` where there is nothing to be had."""


class PlacedHead(Protocol):
    """A head that runs somewhere."""

    name: str
    terms: tuple[Term, ...]
    rereads: bool

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> PlacedStream:
        """The head's stream; raises what the head raises for requests that it cannot judge."""

    def close(self) -> None:
        """Give back what the head occupies elsewhere. May be called more than once."""


class Here:
    """A head that runs when it is begun, in the caller's own thread."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.name, self.terms, self.rereads = head.name, head.terms, head.rereads

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> HereStream:
        return HereStream(self.name, self.head.open(requests, n, sample_rate, hop))

    def close(self) -> None:
        """Nothing to give back."""


class HereStream:
    """See `Here`. What a failed head would say after its failure could be about other audio: it stays failed."""

    def __init__(self, name: str, stream: ScorerStream) -> None:
        self.stream = stream
        self._name = name
        self._scores: Scores | None = None
        self._failure: Exception | None = None

    def begin(self, pcm: Tensor, lengths: Tensor, finished: Tensor, wanted: Tensor | None = None) -> None:
        assert self._scores is None, "begin follows the result of the one before"
        self._try(lambda: self._hear(pcm, lengths, finished, wanted))

    def result(self) -> Scores:
        if self._failure is not None:
            raise HeadError(f"{self._name}: {type(self._failure).__name__}: {self._failure}") from self._failure
        scores, self._scores = self._scores, None
        assert scores is not None, "result follows begin"
        return scores

    def fork(self, parents: Tensor) -> None:
        self._try(lambda: self.stream.fork(parents))

    def commit(self, frames: Tensor) -> None:
        self._try(lambda: self.stream.commit(frames))

    def close(self) -> None:
        self.stream.close()

    def _hear(self, pcm: Tensor, lengths: Tensor, finished: Tensor, wanted: Tensor | None) -> None:
        self._scores = judged(self.stream, pcm, lengths, finished, wanted)

    def _try(self, work: Callable[[], None]) -> None:
        if self._failure is None:
            try:
                work()
            except Exception as error:
                self._failure = error


class FailedStream:
    """The stream of a head that could not open one: failed from the start, whatever it is told."""

    def __init__(self, failure: HeadError) -> None:
        self._failure = failure

    def begin(self, pcm: Tensor, lengths: Tensor, finished: Tensor, wanted: Tensor | None = None) -> None:
        """Nobody hears it."""

    def result(self) -> Scores:
        raise HeadError(str(self._failure)) from self._failure

    def fork(self, parents: Tensor) -> None:
        """Nobody goes on."""

    def commit(self, frames: Tensor) -> None:
        """Nobody remembers anything."""

    def close(self) -> None:
        """Nothing was opened."""


def judged(stream: ScorerStream, pcm: Tensor, lengths: Tensor, finished: Tensor, wanted: Tensor | None) -> Scores:
    """`stream.score`, of the wanted rows alone where some are left out."""
    if wanted is None:
        return stream.score(pcm, lengths, finished)
    assert isinstance(stream, RereadingStream), "only heads that re-read can leave rows out"
    stream.hear(pcm, lengths)
    return stream.judge(finished, wanted)
