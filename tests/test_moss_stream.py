"""Generation in the MOSS-Local layout: what a row draws depends on its request, its number and its past alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from engine.moss.layers import causal_attention
from engine.moss.network import MossNetwork
from engine.moss.prompt import Prompt
from engine.moss.stream import MossStream, RandomDraws
from search.config import Sampling
from search.noise import RowNoise
from search.state import BranchCache
from tests.tiny import tiny_moss_config, tiny_moss_network

CONFIG = tiny_moss_config()
IDS = ("a", "b", "c")
SAMPLING = Sampling(text_temperature=0.0)  # rows never stop, unless a test asks for the dice


@pytest.fixture(scope="module")
def network() -> MossNetwork:
    return tiny_moss_network(CONFIG)


def prompt(length: int) -> Prompt:
    """A prompt with some frames of reference audio in the middle."""
    generator = torch.Generator().manual_seed(length)
    rows = torch.full((length, 1 + CONFIG.books), CONFIG.audio_pad)
    rows[:, 0] = torch.randint(1, 180, (length,), generator=generator)
    rows[length // 2, 1:] = torch.randint(0, 16, (CONFIG.books,), generator=generator)
    return Prompt(rows, rows[-2:])


PROMPTS = (prompt(21), prompt(5), prompt(40))


def opened(
    network: MossNetwork, which: Sequence[int] = (0,), n: int = 1, sampling: Sampling = SAMPLING, guidance: float = 1.0
) -> MossStream:
    draws = RandomDraws(RowNoise(sampling.seed, [IDS[index] for index in which], n), sampling, CONFIG.books)
    prompts = [PROMPTS[index] for index in which]
    return MossStream(network, prompts, n, draws, guidance=guidance, penalty=sampling.repetition_penalty)


def by_request(tensor: Tensor, batch: int) -> Tensor:
    return tensor.view(batch, -1, *tensor.shape[1:])


@pytest.mark.parametrize("guidance", [1.0, 2.5])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_a_row_is_the_same_whatever_n_and_batch_mates(network: MossNetwork, guidance: float, penalty: float) -> None:
    """Bitwise, hidden states too: the cache, the products and the sampler must not let other rows change a rounding."""
    sampling = replace(SAMPLING, repetition_penalty=penalty)
    stream = opened(network, (0, 1, 2), 8, sampling, guidance)
    frames, hidden = by_request(stream.advance(12).frames, 3), by_request(stream.state.hidden[: 3 * 8], 3)
    for which, n in (((0,), 1), ((1,), 2), ((2,), 3), ((2, 0), 5), ((1,), 9)):
        other = opened(network, which, n, sampling, guidance)
        theirs = by_request(other.advance(12).frames, len(which))
        for place, index in enumerate(which):
            shared = min(n, 8)
            assert torch.equal(theirs[place, :shared], frames[index, :shared])
            assert torch.equal(
                by_request(other.state.hidden[: len(which) * n], len(which))[place, :shared], hidden[index, :shared]
            )
    assert len(frames.flatten(0, 1).unique(dim=0)) == 24, "rows that are all alike would pass anything"


def test_chunk_lengths_do_not_matter(network: MossNetwork) -> None:
    whole = opened(network, (0, 1), 3).advance(12).frames
    stream = opened(network, (0, 1), 3)
    parts = [stream.advance(frames).frames for frames in (1, 4, 2, 5)]
    assert torch.equal(torch.cat(parts, 1), whole)


@pytest.mark.parametrize(("guidance", "prompts"), [(1.0, 2), (3.0, 4)])
@pytest.mark.parametrize("n", [1, 6])
def test_a_prompt_is_read_once_a_side(network: MossNetwork, guidance: float, prompts: int, n: int) -> None:
    """Two requests: two prompts, or four under guidance, however many candidates there are and however they fork."""
    rows_read: list[int] = []
    handle = network.transformer.register_forward_hook(
        lambda _module, arguments, _output: rows_read.append(arguments[0].shape[:-1].numel())
    )
    try:
        stream = opened(network, (0, 1), n, guidance=guidance)
        for _ in range(3):
            stream.advance(2)
            stream.fork(torch.zeros(2, n, dtype=torch.int64))
            stream.commit(torch.tensor([2, 2]))
    finally:
        handle.remove()
    assert rows_read == [prompts * 21] + [prompts * n] * 6


def plain_frames(network: MossNetwork, rows: Tensor, frames: int, sampling: Sampling) -> Tensor:
    """Row 0 of request "a" by the plainest means: the whole sequence again for every code, no cache, no batch."""
    draws = RandomDraws(RowNoise(sampling.seed, ["a"], 1), sampling, CONFIG.books)
    draws.prepare(0, frames)
    for frame in range(frames):
        hidden = network.transformer(network.embed(rows[None]), torch.arange(len(rows))[None], causal_attention)[0, -1]
        codes = torch.zeros(CONFIG.books, dtype=torch.int64)
        for book in range(CONFIG.books):
            logits = network.audio_logits(network.depth_hidden(hidden, codes))[book]
            codes[book] = draws.code(frame, book, logits[None])
        rows = torch.cat([rows, torch.cat([torch.tensor([CONFIG.ids.assistant_slot]), codes])[None]])
    return rows[-frames:, 1:]


def test_the_cached_stream_is_the_plain_recomputation(network: MossNetwork) -> None:
    assert torch.equal(opened(network).advance(8).frames[0], plain_frames(network, PROMPTS[0].conditional, 8, SAMPLING))


@pytest.mark.parametrize("commit", [False, True])
def test_a_fork_goes_on_as_its_parent(network: MossNetwork, commit: bool) -> None:
    """Teacher-forced check by recomputation: a child's hidden state is that of its parent's frames and its own."""
    stream, n = opened(network, (0, 1), 3), 3
    first = by_request(stream.advance(4).frames, 2)
    parents = torch.tensor([[2, 2, 0], [1, 1, 1]])
    stream.fork(parents)
    if commit:
        stream.commit(torch.tensor([0, 4]))
    second = by_request(stream.advance(3).frames, 2)
    for request in range(2):
        for row in range(n):
            said = torch.cat([first[request, parents[request, row]], second[request, row]])
            slots = torch.full((7, 1), CONFIG.ids.assistant_slot)
            rows = torch.cat([PROMPTS[request].conditional, torch.cat([slots, said], 1)])
            hidden = network.transformer(network.embed(rows[None]), torch.arange(len(rows))[None], causal_attention)
            torch.testing.assert_close(stream.state.hidden[request * n + row], hidden[0, -1], rtol=1e-4, atol=1e-4)


def test_the_repetition_history_forks_with_its_row(network: MossNetwork) -> None:
    sampling = replace(SAMPLING, repetition_penalty=1e9, temperature=0.0)
    stream = opened(network, n=2, sampling=sampling)
    first = stream.advance(3).frames
    stream.fork(torch.tensor([[1, 1]]))
    chunk = torch.cat([first[[1, 1]], stream.advance(3).frames], 1)
    for book in range(CONFIG.books):  # with such a penalty no code comes twice while another has a positive logit
        seen = stream.state.seen[book]
        assert torch.equal(seen[0].nonzero()[:, 0], chunk[0, :, book].unique())
    assert all(len(row.unique()) == 6 for row in chunk[0].T)


def test_guidance_1_is_plain_and_reads_one_side(network: MossNetwork) -> None:
    """With the condition as its own opposite every scale is 1, so two sides must say what one says."""
    plain = opened(network, n=4).advance(8).frames
    noise = RowNoise(SAMPLING.seed, ["a"], 4)
    same = Prompt(PROMPTS[0].conditional, PROMPTS[0].conditional)
    stream = MossStream(network, [same], 4, RandomDraws(noise, SAMPLING, CONFIG.books), guidance=3.0, penalty=1.0)
    assert torch.equal(stream.advance(8).frames, plain)
    assert stream.state.cache.groups == 2
    assert opened(network, n=4).state.cache.groups == 1


def test_guidance_moves_the_logits_away_from_the_unconditional(network: MossNetwork) -> None:
    """One frame, book 0: uncond + g * (cond - uncond), from two plain passes."""
    first = []
    for rows in (PROMPTS[2].conditional, PROMPTS[2].unconditional):
        assert rows is not None
        hidden = network.transformer(network.embed(rows[None]), torch.arange(len(rows))[None], causal_attention)[0, -1]
        first.append(
            network.audio_logits(network.depth_hidden(hidden, torch.zeros(CONFIG.books, dtype=torch.int64)))[0]
        )
    guided = first[1] + 4.0 * (first[0] - first[1])
    greedy = replace(SAMPLING, temperature=0.0)
    code = opened(network, (2,), sampling=greedy, guidance=4.0).advance(1).frames[0, 0, 0]
    assert code == guided.argmax()
    assert code != first[0].argmax(), "a case where guidance changes nothing would show nothing"


@dataclass
class StopAt:
    """Draws that stop row r before frame `frames[r]`."""

    inner: RandomDraws
    frames: Tensor

    def prepare(self, start: int, frames: int) -> None:
        self.inner.prepare(start, frames)

    def stop(self, frame: int, _logits: Tensor) -> Tensor:
        return self.frames == frame

    def code(self, frame: int, book: int, logits: Tensor) -> Tensor:
        return self.inner.code(frame, book, logits)


def stopping(network: MossNetwork, which: Sequence[int], n: int, frames: Sequence[int]) -> MossStream:
    draws = StopAt(RandomDraws(RowNoise(0, [IDS[i] for i in which], n), SAMPLING, CONFIG.books), torch.tensor(frames))
    return MossStream(network, [PROMPTS[i] for i in which], n, draws, guidance=1.0, penalty=1.0)


def test_finished_rows_pad_and_change_nobody(network: MossNetwork) -> None:
    never = 99
    free = stopping(network, (0, 1), 2, [never] * 4).advance(6).frames
    stream = stopping(network, (0, 1), 2, [2, never, never, 0])
    chunk = stream.advance(6)
    assert chunk.lengths.tolist() == [2, 6, 6, 0]
    assert chunk.finished.tolist() == [True, False, False, True]
    for row, length in enumerate(chunk.lengths.tolist()):
        assert torch.equal(chunk.frames[row, :length], free[row, :length])
        assert bool((chunk.frames[row, length:] == CONFIG.audio_pad).all())
    after = stream.advance(2)
    assert after.lengths.tolist() == [0, 2, 2, 0]


def test_a_chunk_is_shorter_only_when_all_have_finished(network: MossNetwork) -> None:
    stream = stopping(network, (0, 1), 2, [2, 3, 1, 5])
    chunk = stream.advance(9)
    assert chunk.frames.shape == (4, 5, CONFIG.books)
    assert chunk.lengths.tolist() == [2, 3, 1, 5]
    assert bool(chunk.finished.all())
    assert stream.advance(9).frames.shape == (4, 0, CONFIG.books)


def test_a_request_that_is_done_takes_no_more_room(network: MossNetwork) -> None:
    stream = stopping(network, (0, 1), 2, [1, 2, 99, 99])
    stream.advance(8)
    assert stream.state.cache.pending == [2, 8]


def test_the_dice_stop_as_often_as_the_head_says(network: MossNetwork) -> None:
    """64 rows with a chance of about 6 % a frame: some stop within 12 frames, some do not."""
    chunk = opened(network, n=64, sampling=replace(SAMPLING, text_temperature=1.0)).advance(12)
    assert 10 < int(chunk.finished.sum()) < 54
    assert bool((chunk.lengths[~chunk.finished] == 12).all())


@pytest.mark.parametrize("field", ["hidden", "finished"])
def test_state_that_cannot_be_forked_raises(network: MossNetwork, field: str) -> None:
    stream = opened(network, n=2)
    stream.advance(1)
    setattr(stream.state, field, object())
    with pytest.raises(TypeError, match=f"MossState.{field}"):
        stream.fork(torch.tensor([[1, 0]]))


@pytest.mark.parametrize(
    "use",
    [
        lambda stream: stream.advance(1),
        lambda stream: stream.fork(torch.tensor([[0]])),
        lambda stream: stream.commit(torch.tensor([0])),
    ],
)
def test_a_closed_stream_says_so(network: MossNetwork, use: Callable[[MossStream], object]) -> None:
    stream = opened(network)
    stream.close()
    stream.close()
    with pytest.raises(RuntimeError, match="closed"):
        use(stream)


def test_the_cache_is_a_branch_cache_with_the_sides_of_guidance_as_groups(network: MossNetwork) -> None:
    state = opened(network, (0, 2), 3, guidance=2.0).state
    assert isinstance(state.cache, BranchCache)
    assert state.cache.committed == [21, 40, 2, 2]
    assert state.hidden.shape[0] == 4 * 3
