"""Laws of work and of failures can fail (9, 10): for each, a part that is broken in one known way, and caught."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from codec.fake import FakeCodec, FakeCodecStream
from engine.fake import NEVER, FakeEngine, FakeEngineStream, FakeVoice
from scorers.fake import FakeScorer, FakeScorerStream, FakeTaste
from search import Sampling, SpeechRequest
from search.protocols import Chunk
from search.stream import SearchStream
from tests.contracts import failures, forks, walks, work
from tests.mutants import (
    NeverForgets,
    codec_pool,
    codec_with,
    fails,
    scorer_with,
    subject,
    swap,
)
from tests.test_contracts_fake import REQUESTS


class DecodesAgain(FakeCodecStream):
    """Decodes everything again for every chunk: A, 2A, 3A, bug report C5."""

    heard: ClassVar[list[Tensor]] = []

    def decode(self, chunk: Chunk) -> Tensor:
        self.heard.append(chunk.frames[0])
        self._codec.decode(torch.cat(self.heard))
        return super().decode(chunk)


class GrowsWhenIdle(FakeCodecStream):
    """Requests that ended long ago go on growing their tails."""

    def _recall(self, symbol: Tensor, lengths: Tensor) -> Tensor:
        return super()._recall(symbol, torch.ones_like(lengths))


@pytest.mark.parametrize("stream", [DecodesAgain, GrowsWhenIdle])
def test_law_9_catches_codecs_whose_work_grows(stream: type[FakeCodecStream]) -> None:
    fails(work.codec_work_does_not_grow, codec_with(stream), codec_pool())


class ListensAgain(FakeScorerStream):
    def _listen(self, pcm: Tensor, lengths: Tensor) -> None:
        self.kept = torch.cat([*([self.kept] if hasattr(self, "kept") else []), pcm], 1)
        super()._listen(pcm, lengths)


def test_law_9_catches_an_engine_whose_work_grows() -> None:
    endless = swap(NeverForgets)(FakeVoice(length=NEVER))
    fails(work.engine_work_does_not_grow, replace(subject(endless), work_chunks=20))


def test_law_9_catches_a_scorer_whose_work_grows() -> None:
    pcm = torch.zeros(400)
    fails(work.scorer_work_does_not_grow, scorer_with(ListensAgain), REQUESTS, pcm, 100, 8)


def test_law_10_catches_streams_that_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.branches.ExitStack.__exit__", lambda *_: None)
    fails(failures.failures_lose_nothing, subject())


def test_law_10_catches_a_lost_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(stream: SearchStream) -> Any:
        try:
            return next(stream._commits)
        except StopIteration:
            raise
        except Exception as error:
            raise stream._failure(error) from None

    monkeypatch.setattr(SearchStream, "__next__", lost)
    fails(failures.failures_lose_nothing, subject())


def test_law_10_catches_lost_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SearchStream._failure

    def forgetful(stream: SearchStream, error: BaseException) -> Any:
        for track in stream._tracks:
            track.segments.clear()
        return original(stream, error)

    monkeypatch.setattr(SearchStream, "_failure", forgetful)
    fails(failures.failures_lose_nothing, subject())


def test_law_10_catches_a_search_that_fails_ever_after() -> None:
    class Spoilt(FakeEngine):
        def open(self, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> FakeEngineStream:
            if self.opened:
                raise AssertionError("this engine speaks once")
            return super().open(requests, n, sampling)

    with pytest.raises((AssertionError, RuntimeError)):
        failures.failures_lose_nothing(subject(Spoilt()))


def test_a_sound_subject_passes_what_the_mutants_fail() -> None:
    """The same calls on the fakes as they are: it is the mutation that is caught, not the way of asking."""
    sound = subject(FakeEngine(FakeVoice()), FakeScorer(FakeTaste()))
    pcm = torch.arange(400).float() * 977 % 4001 / 2.0**15
    walks.codec_streams_what_it_decodes(FakeCodec(), codec_pool(), sound)
    walks.scorer_hears_only_the_row(FakeScorer(), REQUESTS, pcm, 100, 8, sound)
    forks.unknown_state_raises(forks.opened_engine(sound))
    forks.a_fork_moves_every_part(forks.opened_codec(FakeCodec(), codec_pool()), sound)
    work.codec_work_does_not_grow(FakeCodec(), codec_pool())
    work.scorer_work_does_not_grow(FakeScorer(), REQUESTS, pcm, 100, 8)
    work.engine_work_does_not_grow(sound)
