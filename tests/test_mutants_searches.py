"""Laws of whole searches can fail (1, 4, 5, 6): for each, a part that is broken in one known way, and caught."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.fake import FakeEngine, FakeEngineStream, FakeVoice
from scorers.fake import FakeScorer, FakeScorerStream
from search import Sampling, SpeechRequest
from search import track as search_track
from search.noise import RowNoise
from search.protocols import Scores
from search.state import BranchCache, fork_rows
from search.stream import SearchStream
from tests.contracts import searches, walks
from tests.mutants import (
    Careless,
    NeverForgets,
    fails,
    scorer_with,
    subject,
    swap,
)
from tests.test_contracts_fake import REQUESTS


def test_law_1_catches_padding_that_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug report A6, on an engine and a scorer that do not check what is committed."""
    original = search_track.Track.decide

    def decide(track: Any, *arguments: Any) -> search_track.Decision:
        decision = original(track, *arguments)
        return replace(decision, frames=track.frames.shape[1]) if track.ended else decision

    monkeypatch.setattr(search_track.Track, "decide", decide)
    fails(searches.segments_are_the_audio, subject(swap(NeverForgets)(), scorer_with(Careless)))


def test_law_1_catches_a_commit_that_is_handed_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SearchStream.__next__

    def twice(stream: SearchStream) -> Any:
        if getattr(stream, "again", None) is not None:
            commit, stream.again = stream.again, None  # type: ignore[attr-defined]
        else:
            commit = stream.again = original(stream)  # type: ignore[attr-defined]
        return commit

    monkeypatch.setattr(SearchStream, "__next__", twice)
    fails(searches.segments_are_the_audio, subject())


class CountsCalls(FakeEngineStream):
    """Its noise depends on how often it was called, and so on the chunk length."""

    calls = 0

    def _draws(self, frames: int) -> Tensor:
        self.calls += 1
        return (super()._draws(frames) + self.calls * 0.1) % 1.0


def test_law_4_catches_noise_that_depends_on_the_chunks() -> None:
    fails(searches.one_candidate_is_plain_sampling, subject(swap(CountsCalls)()))


def test_law_4_catches_a_scorer_that_reaches_into_the_engine() -> None:
    engine = FakeEngine()

    class Meddler(FakeScorerStream):
        def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
            engine.last._state.digest += 1  # type: ignore[attr-defined]
            return super().score(pcm, lengths, finished)

    class Opens(FakeScorer):
        def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> FakeScorerStream:
            return Meddler(self, requests, n, sample_rate, hop)

    original = engine.open

    def remembered(*arguments: Any) -> FakeEngineStream:
        engine.last = original(*arguments)  # type: ignore[attr-defined]
        return engine.last  # type: ignore[attr-defined, no-any-return]

    engine.open = remembered  # type: ignore[method-assign]
    fails(searches.one_candidate_is_plain_sampling, subject(engine, Opens()))


class KeyedByN(FakeEngineStream):
    """Noise that depends on how many candidates there are."""

    def __init__(self, engine: FakeEngine, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> None:
        super().__init__(engine, requests, n, sampling)
        self._noise = RowNoise(sampling.seed + n, [request.id for request in requests], n)


class KeyedByPlace(FakeEngineStream):
    """Noise that depends on the place in the batch: bug report B4."""

    def __init__(self, engine: FakeEngine, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> None:
        super().__init__(engine, requests, n, sampling)
        self._noise = RowNoise(sampling.seed, [str(place) for place in range(len(requests))], n)


class SharedGenerator(FakeEngineStream):
    """One generator for all rows, consumed by size: bug report B3."""

    def _draws(self, frames: int) -> Tensor:
        if not hasattr(self, "_generator"):
            self._generator = torch.Generator().manual_seed(self._sampling.seed)
        return torch.rand(len(self._words), frames, self._channels + 2, generator=self._generator)


ILL_KEYED = [KeyedByN, KeyedByPlace, SharedGenerator]


@pytest.mark.parametrize("stream", ILL_KEYED)
def test_law_5_catches_noise_that_depends_on_the_company(stream: type[FakeEngineStream]) -> None:
    fails(searches.rows_are_nested_and_strangers, subject(swap(stream)()))


@pytest.mark.parametrize("stream", [KeyedByPlace, SharedGenerator])
def test_law_5_catches_searches_that_depend_on_the_company(stream: type[FakeEngineStream]) -> None:
    fails(searches.searches_are_strangers, subject(swap(stream)()))


class Relative(FakeScorerStream):
    """Rewards relative to all rows of the batch: bug report E7."""

    def _reward(self) -> Tensor:
        reward = super()._reward()
        return (reward - reward.mean()).sign() * reward.sort().values


class ForgetsDigest(FakeScorerStream):
    def fork(self, parents: Tensor) -> None:
        digest = self._state.digest
        fork_rows(self._state, parents)
        self._state.digest = digest


@pytest.mark.parametrize("stream", [Relative, ForgetsDigest])
def test_laws_3_and_5_catch_scorers_that_hear_more_than_the_row(stream: type[FakeScorerStream]) -> None:
    pcm = torch.arange(400).float() * 977 % 4001 / 2.0**15
    fails(walks.scorer_hears_only_the_row, scorer_with(stream), REQUESTS, pcm, 100, 8, subject())


def test_law_5_catches_batch_mates_that_move_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row cut at its limit in a chunk that a longer batch mate asked for is not finished, wherever it ended."""
    original = search_track.Track.hear

    def hear(track: Any, frames: Tensor, lengths: list[int], finished: list[bool], pcm: Tensor) -> list[int]:
        fresh = original(track, frames, lengths, finished, pcm)
        track.finished = list(finished)
        return fresh

    monkeypatch.setattr(search_track.Track, "hear", hear)
    fails(searches.searches_are_strangers, replace(subject(FakeEngine(FakeVoice(length=18))), max_seconds=None))


class ReadsAgain(FakeEngineStream):
    """Reads the prompt again at every fork: bug report A13."""

    def fork(self, parents: Tensor) -> None:
        self._engine.prefills += 1
        super().fork(parents)


class ReadsPerRow(FakeEngineStream):
    def __init__(self, engine: FakeEngine, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> None:
        super().__init__(engine, requests, n, sampling)
        cache = BranchCache(layers=1, groups=len(requests) * n, n=1, kv_heads=1, head_dim=4)
        cache.prefill(torch.ones(len(requests) * n, dtype=torch.int64))


@pytest.mark.parametrize("stream", [ReadsAgain, ReadsPerRow])
def test_law_6_catches_prompts_that_are_read_more_than_once(stream: type[FakeEngineStream]) -> None:
    fails(searches.each_prompt_is_read_once, subject(swap(stream)()))
