"""Fakes that are broken in one known way, and what the laws have to say about them. Knows no law."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from codec.fake import FakeCodec, FakeCodecStream
from engine.fake import FakeEngine, FakeEngineStream
from scorers.fake import FakeScorer, FakeScorerStream
from search import Sampling, SearchFailed, SpeechRequest
from search.state import fork_rows
from tests.contracts import Subject
from tests.test_contracts_fake import REQUESTS


def subject(engine: Any = None, scorer: Any = None) -> Subject:
    return Subject(engine or FakeEngine(), scorer or FakeScorer(), REQUESTS, examples=40, shrink=False)


def fails(law: Any, *arguments: Any) -> None:
    """The law must not hold, or the fakes must notice in a search what the loop broke."""
    with pytest.raises((AssertionError, SearchFailed)) as caught:
        law(*arguments)
    error = caught.value
    assert isinstance(error if isinstance(error, AssertionError) else error.__cause__, AssertionError), repr(error)


def codec_pool() -> Tensor:
    return torch.arange(150).view(50, 3) * 7 % 32


def swap(engine_stream: Any) -> Any:
    """A fake engine with another stream class."""

    class Mutant(FakeEngine):
        def open(self, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> FakeEngineStream:
            self.opened += 1
            return engine_stream(self, requests, n, sampling)  # type: ignore[no-any-return]

    return Mutant


class ForgetsNested(FakeCodecStream):
    """Forks what it finds at the top, and skips the attention cache: bug report A2."""

    def fork(self, parents: Tensor) -> None:
        fork_rows(self._state.filter, parents)


def codec_with(stream: type[FakeCodecStream], **options: Any) -> FakeCodec:
    class Mutant(FakeCodec):
        def open(self, batch: int, n: int) -> FakeCodecStream:
            return stream(self, batch, n)

    return Mutant(**options)


class Careless(FakeScorerStream):
    def commit(self, frames: Tensor) -> None:
        """Takes whatever it is told."""


def scorer_with(stream: type[FakeScorerStream]) -> FakeScorer:
    class Mutant(FakeScorer):
        def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> FakeScorerStream:
            self.opened += 1
            return stream(self, requests, n, sample_rate, hop)

    return Mutant()


class NeverForgets(FakeEngineStream):
    """Keeps what is committed, and copies it with every chunk."""

    def commit(self, frames: Tensor) -> None:
        """Nothing is moved."""
