"""Laws of streams and forks can fail (2, 3, 7, 8): for each, a part that is broken in one known way, and caught."""

import pytest
from torch import Tensor

from codec.fake import FakeCodec, FakeCodecStream
from engine.fake import FakeEngineStream
from search import state as search_state
from search.protocols import Chunk
from search.state import fork_rows
from tests.contracts import forks, walks
from tests.mutants import ForgetsNested, codec_pool, codec_with, fails, subject, swap


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


@pytest.mark.parametrize("stream", [ForgetsNested, ForgetsFilter, ShortContext, LateTail, NoisyPadding])
def test_law_2_catches_codecs_that_stream_otherwise_than_they_decode(stream: type[FakeCodecStream]) -> None:
    fails(walks.codec_streams_what_it_decodes, codec_with(stream), codec_pool(), subject())


def test_law_2_catches_a_codec_that_comes_out_short() -> None:
    """Bug report C1: 555 samples short in every chunk, one click every 0.8 s."""
    fails(walks.codec_streams_what_it_decodes, FakeCodec(output_deficit=5), codec_pool(), subject())


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


class ForksWhatItKnows(FakeEngineStream):
    """Gathers tensors and passes over everything else: bug report A1."""

    def fork(self, parents: Tensor) -> None:
        for name, value in vars(self._state).items():
            if isinstance(value, Tensor):
                setattr(self._state, name, value[search_state.row_index(parents)])


def test_law_8_catches_forks_that_skip_what_they_do_not_know() -> None:
    fails(forks.unknown_state_raises, forks.opened_engine(subject(swap(ForksWhatItKnows)())))
