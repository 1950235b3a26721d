"""When a row may stop: the bias on its stop, the shortest length, and the side of guidance that decides."""

from typing import Any

import pytest
import torch

from codec.fake import FakeCodec
from engine.builtin.voice import load_voice
from engine.fake import FakeEngine
from engine.moss.engine import MossEngine
from engine.moss.prompt import Prompt
from engine.moss.stream import MossStream, RandomDraws
from scorers.fake import FakeScorer
from search import ChunkSearch, Sampling, SpeechRequest
from search.noise import RowNoise
from search.protocols import Chunk
from tests.tiny import tiny_moss_config, tiny_moss_network

RATE = FakeCodec().sample_rate
CONFIG = tiny_moss_config(sample_rate=RATE)
ROWS = torch.full((4, 1 + CONFIG.books), CONFIG.audio_pad)
ROWS[:, 0] = torch.arange(4) + 7
REQUEST = SpeechRequest(text="word", id="a", prompt=ROWS, unconditional=ROWS[:2])


def spoken(frames: int = 40, stop: float = 0.2, n: int = 32, **sampling: Any) -> Chunk:
    engine = MossEngine(tiny_moss_network(CONFIG, stop=stop), FakeCodec(), name="tiny")
    return engine.open([REQUEST], n, Sampling(**sampling)).advance(frames)


def test_without_options_nothing_changes() -> None:
    plain, options = spoken(), spoken(stop_bias=0.0, min_seconds=0.0)
    assert torch.equal(plain.frames, options.frames)
    assert torch.equal(plain.lengths, options.lengths)
    assert bool((plain.lengths < 3).any()), "rows that never stop early would show nothing below"


def test_a_bias_makes_rows_longer_and_its_opposite_shorter() -> None:
    shorter, plain, longer = (int(spoken(stop_bias=bias).lengths.sum()) for bias in (-3.0, 0.0, 3.0))
    assert shorter * 1.5 < plain < longer / 1.5


def test_the_bias_is_taken_from_the_stop_logit() -> None:
    draws = RandomDraws(RowNoise(0, [None], 3), Sampling(text_temperature=0.0, stop_bias=2.0), CONFIG.books)
    draws.prepare(0, 1)
    assert draws.stop(0, torch.tensor([[1.0, 2.9], [1.0, 3.1], [-1.0, 1.5]])).tolist() == [False, True, True]


@pytest.mark.parametrize("text_temperature", [0.0, 1.0])
def test_no_row_stops_before_the_shortest_length(text_temperature: float) -> None:
    """Five frames and a part of one; the chunks do not matter, nor that the head is nearly sure."""
    sampling = Sampling(text_temperature=text_temperature, min_seconds=0.41)
    engine = MossEngine(tiny_moss_network(CONFIG, stop=0.99), FakeCodec(), name="tiny")
    stream = engine.open([REQUEST], 8, sampling)
    chunks = [stream.advance(frames) for frames in (2, 3, 1, 6)]
    lengths = torch.stack([chunk.lengths for chunk in chunks]).sum(0)
    assert lengths.min() == 6
    assert lengths.max() < 12


def test_what_is_said_until_then_does_not_depend_on_it() -> None:
    plain, longer = spoken(), spoken(min_seconds=1.0)
    assert bool((longer.lengths >= 13).all())
    for row, length in enumerate(plain.lengths.tolist()):
        assert torch.equal(plain.frames[row, :length], longer.frames[row, :length])


def test_the_conditional_side_alone_decides_to_stop() -> None:
    """The stop logits under guidance are those without; the other side's would be others."""
    network = tiny_moss_network(CONFIG, stop=0.2)
    with torch.no_grad():
        network.local_text_lm_head.weight.mul_(0.0)
        network.local_text_lm_head.weight[1] = 2.0 * torch.randn(32)  # the decision depends on the hidden state
    seen: list[torch.Tensor] = []

    class Watching(RandomDraws):
        def stop(self, frame: int, logits: torch.Tensor) -> torch.Tensor:
            seen.append(logits)
            return super().stop(frame, logits)

    for guidance in (1.0, 4.0):
        draws = Watching(RowNoise(0, ["a"], 4), Sampling(), CONFIG.books)
        prompt = Prompt(ROWS, ROWS[:2])
        MossStream(network, [prompt], 4, draws, guidance=guidance, penalty=1.0).advance(1)
    assert torch.equal(seen[0], seen[1])
    other = Watching(RowNoise(0, ["a"], 4), Sampling(), CONFIG.books)
    MossStream(network, [Prompt(ROWS[:2])], 4, other, guidance=1.0, penalty=1.0).advance(1)
    assert not torch.allclose(seen[2], seen[0]), "sides that agree would show nothing"


def test_a_search_keeps_both_promises() -> None:
    engine = MossEngine(tiny_moss_network(CONFIG, stop=0.5), FakeCodec(), name="tiny")
    result = ChunkSearch(engine, FakeScorer()).generate(REQUEST, n=4, min_seconds=1.6)
    assert len(result.frames) >= 20
    assert result.status == "complete"


def test_the_built_in_voice_honours_them() -> None:
    result = ChunkSearch(load_voice()).generate(SpeechRequest(text="Oh."), n=1, min_seconds=2.0, max_seconds=2.4)
    assert len(result.frames) >= 25


@pytest.mark.parametrize("option", ["stop_bias", "min_seconds"])
def test_an_engine_that_would_ignore_them_refuses(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option}: the fake engine"):
        FakeEngine().open([SpeechRequest(text="a")], 1, Sampling(**{option: 1.0}))
