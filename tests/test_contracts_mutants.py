"""Every law can fail: for each, an engine, codec, scorer or loop that is broken in one known way, and caught."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from codec.fake import FakeCodec, FakeCodecStream
from engine.fake import NEVER, FakeEngine, FakeEngineStream, FakeVoice
from scorers.fake import FakeScorer, FakeScorerStream, FakeTaste
from search import Sampling, SearchFailed, SpeechRequest
from search import state as search_state
from search import track as search_track
from search.noise import RowNoise
from search.protocols import Chunk, Scores
from search.state import BranchCache, fork_rows
from search.stream import SearchStream
from tests.contracts import Subject, failures, forks, searches, walks, work
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


# --- law 1 -----------------------------------------------------------------------------------------------------------


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


# --- law 2 -----------------------------------------------------------------------------------------------------------


class ForgetsNested(FakeCodecStream):
    """Forks what it finds at the top, and skips the attention cache: bug report A2."""

    def fork(self, parents: Tensor) -> None:
        fork_rows(self._state.filter, parents)


class ForgetsFilter(FakeCodecStream):
    def fork(self, parents: Tensor) -> None:
        self._state.memory.fork(parents)


class ShortContext(FakeCodecStream):
    """Keeps less history than its filter needs: bug report C2."""

    def decode(self, chunk: Chunk) -> Tensor:
        self._state.filter.samples[:, :40] = 0
        return super().decode(chunk)


class LateTail(FakeCodecStream):
    """The last samples of a chunk arrive damaged: bug report C5."""

    def decode(self, chunk: Chunk) -> Tensor:
        pcm = super().decode(chunk)
        pcm[:, -1:] *= 0.5
        return pcm


class NoisyPadding(FakeCodecStream):
    def decode(self, chunk: Chunk) -> Tensor:
        return super().decode(chunk) + 2.0**-15


def codec_with(stream: type[FakeCodecStream], **options: Any) -> FakeCodec:
    class Mutant(FakeCodec):
        def open(self, batch: int, n: int) -> FakeCodecStream:
            return stream(self, batch, n)

    return Mutant(**options)


@pytest.mark.parametrize("stream", [ForgetsNested, ForgetsFilter, ShortContext, LateTail, NoisyPadding])
def test_law_2_catches_codecs_that_stream_otherwise_than_they_decode(stream: type[FakeCodecStream]) -> None:
    fails(walks.codec_streams_what_it_decodes, codec_with(stream), codec_pool(), subject())


def test_law_2_catches_a_codec_that_comes_out_short() -> None:
    """Bug report C1: 555 samples short in every chunk, one click every 0.8 s."""
    fails(walks.codec_streams_what_it_decodes, FakeCodec(output_deficit=5), codec_pool(), subject())


# --- law 3 -----------------------------------------------------------------------------------------------------------


class DeafFork(FakeEngineStream):
    """Rows go on as themselves, under their parents' names."""

    def fork(self, parents: Tensor) -> None:
        fork_rows(self._state, parents)
        self._state.digest = self._state.digest.roll(1)


class SkipsDigest(FakeEngineStream):
    def fork(self, parents: Tensor) -> None:
        digest = self._state.digest
        fork_rows(self._state, parents)
        self._state.digest = digest


class SeesOthers(FakeEngineStream):
    def advance(self, frames: int) -> Chunk:
        self._state.digest = self._state.digest + self._state.digest.sum()
        return super().advance(frames)


class CommitChanges(FakeEngineStream):
    def commit(self, frames: Tensor) -> None:
        super().commit(frames)
        self._state.digest = self._state.digest + frames.repeat_interleave(self._n)


@pytest.mark.parametrize("stream", [DeafFork, SeesOthers, CommitChanges])
def test_law_3_catches_futures_that_depend_on_more_than_the_parent(stream: type[FakeEngineStream]) -> None:
    fails(forks.futures_follow_the_parent, subject(swap(stream)()))


@pytest.mark.parametrize("stream", [DeafFork, SkipsDigest])
def test_law_3_catches_state_that_does_not_follow_the_parent(stream: type[FakeEngineStream]) -> None:
    mutant = subject(swap(stream)())
    fails(forks.a_fork_moves_every_part, forks.opened_engine(mutant), mutant)


def test_law_3_catches_nested_state_that_is_left_behind() -> None:
    fails(forks.a_fork_moves_every_part, forks.opened_codec(codec_with(ForgetsNested), codec_pool()), subject())


# --- law 4 -----------------------------------------------------------------------------------------------------------


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


# --- law 5 -----------------------------------------------------------------------------------------------------------


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


class Careless(FakeScorerStream):
    def commit(self, frames: Tensor) -> None:
        """Takes whatever it is told."""


class ForgetsDigest(FakeScorerStream):
    def fork(self, parents: Tensor) -> None:
        digest = self._state.digest
        fork_rows(self._state, parents)
        self._state.digest = digest


def scorer_with(stream: type[FakeScorerStream]) -> FakeScorer:
    class Mutant(FakeScorer):
        def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> FakeScorerStream:
            self.opened += 1
            return stream(self, requests, n, sample_rate, hop)

    return Mutant()


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


# --- law 6 -----------------------------------------------------------------------------------------------------------


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


# --- law 7 -----------------------------------------------------------------------------------------------------------


class AlwaysGathers(FakeEngineStream):
    """Gathers, though every row stays where it is: bug report A5."""

    def fork(self, parents: Tensor) -> None:
        search_state._forked(self._state, parents, search_state.row_index(parents), "state")


class WritesInPlace(FakeEngineStream):
    def fork(self, parents: Tensor) -> None:
        self._state.digest.copy_(self._state.digest[search_state.row_index(parents)])
        super().fork(parents)


class Rounds(FakeCodecStream):
    """Not bit for bit: bug report A4."""

    def fork(self, parents: Tensor) -> None:
        super().fork(parents)
        self._state.filter.samples = self._state.filter.samples * (1 + 1e-6)


@pytest.mark.parametrize("stream", [AlwaysGathers, WritesInPlace])
def test_law_7_catches_identity_forks_that_copy(stream: type[FakeEngineStream]) -> None:
    fails(forks.identity_forks_copy_nothing, forks.opened_engine(subject(swap(stream)())))


def test_law_7_catches_forks_that_round() -> None:
    fails(forks.permutations_are_undone, forks.opened_codec(codec_with(Rounds), codec_pool()), subject())


# --- law 8 -----------------------------------------------------------------------------------------------------------


class ForksWhatItKnows(FakeEngineStream):
    """Gathers tensors and passes over everything else: bug report A1."""

    def fork(self, parents: Tensor) -> None:
        for name, value in vars(self._state).items():
            if isinstance(value, Tensor):
                setattr(self._state, name, value[search_state.row_index(parents)])


def test_law_8_catches_forks_that_skip_what_they_do_not_know() -> None:
    fails(forks.unknown_state_raises, forks.opened_engine(subject(swap(ForksWhatItKnows)())))


# --- law 9 -----------------------------------------------------------------------------------------------------------


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


class NeverForgets(FakeEngineStream):
    """Keeps what is committed, and copies it with every chunk."""

    def commit(self, frames: Tensor) -> None:
        """Nothing is moved."""


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


# --- law 10 ----------------------------------------------------------------------------------------------------------


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
