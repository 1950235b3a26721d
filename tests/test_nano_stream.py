"""Generation in the MOSS-TTS-Nano layout: the shared loop, on a network whose depth decoder hears what was decided."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.moss.layers import causal_attention
from engine.moss.prompt import Prompt
from engine.moss.stream import MossStream, RandomDraws
from engine.nano.network import NanoNetwork
from search.config import Sampling
from search.noise import RowNoise
from tests.tiny_nano import tiny_nano_config, tiny_nano_network

CONFIG = tiny_nano_config()
IDS = ("a", "b", "c")
SAMPLING = Sampling(text_temperature=0.0)  # rows never stop, unless a test asks for the dice


@pytest.fixture(scope="module")
def network() -> NanoNetwork:
    return tiny_nano_network(CONFIG)


def prompt(length: int) -> Prompt:
    """A prompt with a frame of reference audio in the middle."""
    generator = torch.Generator().manual_seed(length)
    rows = torch.full((length, 1 + CONFIG.books), CONFIG.audio_pad)
    rows[:, 0] = torch.randint(10, 96, (length,), generator=generator)
    rows[length // 2, 1:] = torch.randint(0, 16, (CONFIG.books,), generator=generator)
    return Prompt(rows, rows[-2:])


PROMPTS = (prompt(21), prompt(5), prompt(40))


def opened(
    network: NanoNetwork, which: Sequence[int] = (0,), n: int = 1, sampling: Sampling = SAMPLING, guidance: float = 1.0
) -> MossStream:
    draws = RandomDraws(RowNoise(sampling.seed, [IDS[index] for index in which], n), sampling, CONFIG.books)
    prompts = [PROMPTS[index] for index in which]
    return MossStream(network, prompts, n, draws, guidance=guidance, penalty=sampling.repetition_penalty)


def last_hidden(network: NanoNetwork, rows: Tensor) -> Tensor:
    return network.transformer(network.embed(rows[None]), torch.arange(len(rows))[None], causal_attention)[0, -1]


def plain_frames(network: NanoNetwork, rows: Tensor, frames: int) -> Tensor:
    """Row 0 of request "a" by the plainest means: the whole sequence again for every code, no cache, no batch."""
    draws = RandomDraws(RowNoise(SAMPLING.seed, ["a"], 1), SAMPLING, CONFIG.books)
    draws.prepare(0, frames)
    slot = torch.tensor(CONFIG.ids.assistant_slot)
    for frame in range(frames):
        hidden = last_hidden(network, rows)
        codes = torch.zeros(CONFIG.books, dtype=torch.int64)
        for book in range(network.spoken_books):
            logits = network.audio_logits(network.depth_hidden(hidden, slot, codes))[book]
            codes[book] = draws.code(frame, book, logits[None])
        codes[network.spoken_books :] = CONFIG.audio_pad
        rows = torch.cat([rows, torch.cat([slot[None], codes])[None]])
    return rows[-frames:, 1 : 1 + network.spoken_books]


@pytest.mark.parametrize("spoken", [1, 2, 3])
def test_the_cached_stream_is_the_plain_recomputation(spoken: int) -> None:
    network = tiny_nano_network(CONFIG, spoken_books=spoken)
    chunk = opened(network).advance(8)
    assert chunk.frames.shape == (1, 8, spoken)
    assert torch.equal(chunk.frames[0], plain_frames(network, PROMPTS[0].conditional, 8))


def test_the_depth_decoder_hears_what_was_decided(network: NanoNetwork) -> None:
    hidden = torch.randn(32, generator=torch.Generator().manual_seed(1))
    codes = torch.tensor([3, 1, 2])
    said = [network.depth_hidden(hidden, torch.tensor(text), codes) for text in network.stop_candidates()]
    assert torch.equal(said[0][0], said[1][0])
    first = [network.audio_logits(local)[0] for local in said]
    assert not torch.allclose(first[0], first[1])
    assert torch.allclose(network.stop_logits(said[0]), network.text_lm_head(said[0][0])[[9, 7]], atol=1e-6)


@pytest.mark.parametrize("guidance", [1.0, 2.5])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_a_row_is_the_same_whatever_n_and_batch_mates(network: NanoNetwork, guidance: float, penalty: float) -> None:
    """Bitwise, hidden states too."""
    sampling = replace(SAMPLING, repetition_penalty=penalty)
    stream = opened(network, (0, 1, 2), 8, sampling, guidance)
    frames, hidden = stream.advance(12).frames.unflatten(0, (3, 8)), stream.state.hidden[: 3 * 8].unflatten(0, (3, 8))
    for which, n in (((0,), 1), ((1,), 2), ((2,), 3), ((2, 0), 5), ((1,), 9)):
        other = opened(network, which, n, sampling, guidance)
        theirs = other.advance(12).frames.unflatten(0, (len(which), n))
        kept = other.state.hidden[: len(which) * n].unflatten(0, (len(which), n))
        for place, index in enumerate(which):
            shared = min(n, 8)
            assert torch.equal(theirs[place, :shared], frames[index, :shared])
            assert torch.equal(kept[place, :shared], hidden[index, :shared])
    assert len(frames.flatten(0, 1).unique(dim=0)) == 24, "rows that are all alike would pass anything"


@pytest.mark.parametrize("commit", [False, True])
def test_a_fork_goes_on_as_its_parent(network: NanoNetwork, commit: bool) -> None:
    """A child's hidden state is that of its parent's frames and its own, by recomputation."""
    n, stream = 3, opened(network, (0, 1), 3)
    first = stream.advance(4).frames.unflatten(0, (2, n))
    parents = torch.tensor([[2, 2, 0], [1, 1, 1]])
    stream.fork(parents)
    if commit:
        stream.commit(torch.tensor([0, 4]))
    second = stream.advance(3).frames.unflatten(0, (2, n))
    for request in range(2):
        for row in range(n):
            said = torch.cat([first[request, parents[request, row]], second[request, row]])
            slots = torch.full((7, 1), CONFIG.ids.assistant_slot)
            rows = torch.cat([PROMPTS[request].conditional, torch.cat([slots, said], 1)])
            hidden = last_hidden(network, rows)
            torch.testing.assert_close(stream.state.hidden[request * n + row], hidden, rtol=1e-4, atol=1e-4)


def test_guidance_moves_the_logits_and_feeds_one_draw_to_both_sides(network: NanoNetwork) -> None:
    """One frame of all books: uncond + g * (cond - uncond), from two plain passes a book."""
    slot, codes = torch.tensor(CONFIG.ids.assistant_slot), torch.zeros(CONFIG.books, dtype=torch.int64)
    sides = [PROMPTS[2].conditional, PROMPTS[2].unconditional]
    alone = []
    for book in range(CONFIG.books):
        heard = [network.depth_hidden(last_hidden(network, rows), slot, codes) for rows in sides]
        conditional, unconditional = (network.audio_logits(local)[book] for local in heard)
        codes[book] = (unconditional + 4.0 * (conditional - unconditional)).argmax()
        alone.append(int(conditional.argmax()))
    said = opened(network, (2,), sampling=replace(SAMPLING, temperature=0.0), guidance=4.0).advance(1).frames[0, 0]
    assert torch.equal(said, codes)
    assert said.tolist() != alone, "a case where guidance changes nothing would show nothing"


def test_the_dice_stop_as_often_as_the_head_says(network: NanoNetwork) -> None:
    """64 rows with a chance of about 6 % a frame: some stop within 12 frames, some do not."""
    chunk = opened(network, n=64, sampling=replace(SAMPLING, text_temperature=1.0)).advance(12)
    assert 10 < int(chunk.finished.sum()) < 54
    for row, length in enumerate(chunk.lengths.tolist()):
        assert bool((chunk.frames[row, length:] == CONFIG.audio_pad).all())
        assert bool((chunk.frames[row, :length] < CONFIG.audio_pad).all())


@pytest.mark.parametrize("books", [0, 4])
def test_a_network_speaks_some_of_its_books(books: int) -> None:
    with pytest.raises(AssertionError):
        NanoNetwork(CONFIG, books)
