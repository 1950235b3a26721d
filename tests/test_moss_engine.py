"""The engine around the network: requests that fit, settings that fit, and the ten laws on a tiny checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch

from codec.fake import FakeCodec
from engine.moss.checkpoint import load_network
from engine.moss.config import MossConfig
from engine.moss.engine import MossEngine
from engine.registry import load_engine
from scorers.fake import FakeScorer
from search import ChunkSearch, SpeechRequest
from search.config import Sampling
from tests.contracts import Laws, Subject
from tests.tiny import tiny_moss, tiny_moss_config, tiny_moss_network

RATE = FakeCodec().sample_rate
CONFIG = tiny_moss_config(sample_rate=RATE)


def rows(length: int, text: int = 7) -> torch.Tensor:
    out = torch.full((length, 1 + CONFIG.books), CONFIG.audio_pad)
    out[:, 0] = torch.arange(length) % 50 + text
    return out


def request(length: int, **fields: Any) -> SpeechRequest:
    return SpeechRequest(**{"text": "word " * length, "id": str(length), "prompt": rows(length), **fields})


@pytest.fixture
def engine() -> MossEngine:
    return MossEngine(tiny_moss_network(CONFIG), FakeCodec(), name="tiny")


class TestLaws(Laws):
    @pytest.fixture
    def subject(self) -> Subject:
        engine = MossEngine(tiny_moss_network(CONFIG, stop=0.04), FakeCodec(), name="tiny")
        return Subject(engine, FakeScorer(), [request(12), request(3), request(7)], examples=3)


class TestLawsUnderGuidance(Laws):
    @pytest.fixture
    def subject(self) -> Subject:
        engine = MossEngine(tiny_moss_network(CONFIG, stop=0.02), FakeCodec(), name="tiny", default_guidance=2.0)
        requests = [request(length, unconditional=rows(2)) for length in (12, 3, 7)]
        return Subject(engine, FakeScorer(), requests, examples=3, sampling=Sampling(repetition_penalty=1.3))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": rows(3).float()}, r"prompt: rows are float32 \[3, 4\].*int64 \[L, 4\]"),
        ({"prompt": rows(3)[:, :3]}, r"prompt: rows are int64 \[3, 3\]"),
        ({"prompt": rows(3)[:0]}, r"prompt: rows are int64 \[0, 4\]"),
        ({"prompt": rows(3, text=190)}, "prompt: the text column holds 192; allowed are 0 to 191"),
        ({"prompt": rows(3, text=-1)}, "prompt: the text column holds -1"),
        ({"prompt": rows(3).where(rows(3) != 24, 23)}, "prompt: codebook 2 holds 23; allowed are 0 to 15"),
        ({"unconditional": rows(3)[0]}, r"unconditional: rows are int64 \[4\]"),
        ({"prompt": None, "unconditional": rows(3)}, "unconditional: given without a prompt"),
        ({"prompt": None}, "text: .* no text front end; give SpeechRequest.prompt"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(engine: MossEngine, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine.open([request(3), request(3, **fields)], 2, Sampling())


@pytest.mark.parametrize(
    "fields", [{"prompt": rows(3).float()}, {"prompt": None, "unconditional": rows(3)}, {"prompt": None}]
)
def test_a_bad_prompt_is_refused_before_a_search_starts(engine: MossEngine, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="prompt"):
        ChunkSearch(engine, FakeScorer()).stream(request(3, **fields))


def test_guidance_needs_the_other_side_in_every_request(engine: MossEngine) -> None:
    both, one = request(3, unconditional=rows(2)), request(4)
    with pytest.raises(ValueError, match=r"guidance: 2 .* 1 of 2 requests do not have"):
        engine.open([both, one], 2, Sampling(guidance=2.0))
    assert engine.open([both, one], 2, Sampling(guidance=1.0)).state.cache.groups == 2


@pytest.mark.parametrize(
    ("default", "scale", "groups"), [(1.0, None, 1), (2.0, None, 2), (2.0, 1.0, 1), (1.0, 2.0, 2), (2.0, 0.0, 2)]
)
def test_the_engines_default_guidance_yields_to_the_callers(default: float, scale: float | None, groups: int) -> None:
    engine = MossEngine(tiny_moss_network(CONFIG), FakeCodec(), name="tiny", default_guidance=default)
    stream = engine.open([request(3, unconditional=rows(2))], 2, Sampling(guidance=scale))
    assert stream.state.cache.groups == groups
    assert engine.open([request(3)], 2, Sampling()).state.cache.groups == 1


def test_a_condition_that_is_no_other_than_its_opposite_is_read_once(engine: MossEngine) -> None:
    same = request(3, unconditional=rows(3))
    assert engine.open([same], 2, Sampling(guidance=2.0)).state.cache.groups == 1
    both = [same, request(4, unconditional=rows(2))]
    stream = engine.open(both, 2, Sampling(guidance=2.0, text_temperature=0.0))
    assert stream.state.cache.groups == 4
    alone = engine.open([same], 2, Sampling(guidance=2.0, text_temperature=0.0))
    assert torch.equal(stream.advance(6).frames[:2], alone.advance(6).frames)


def test_a_longer_text_has_a_larger_budget(engine: MossEngine) -> None:
    assert engine.budget(request(2)) < engine.budget(request(20)) < engine.budget(request(40))


def test_a_codec_at_another_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=f"sampling_rate: the checkpoint speaks at 24000 Hz, its codec at {RATE} Hz"):
        MossEngine(tiny_moss_network(tiny_moss_config()), FakeCodec(), name="tiny")


def test_settings_reach_the_draws(engine: MossEngine) -> None:
    """Every dial that the sampler owns changes what is said."""
    settings = [{}, {"seed": 1}, {"temperature": 0.0}, {"temperature": 2.0}, {"top_k": 2}, {"top_p": 0.5}]
    settings += [{"repetition_penalty": 3.0}]
    said = [
        engine.open([request(5)], 1, Sampling(**{"text_temperature": 0.0, **fields})).advance(20).frames
        for fields in settings
    ]
    assert len(torch.cat(said).unique(dim=0)) == len(settings)


def test_the_registry_lists_what_there_is(tmp_path: Path) -> None:
    assert load_engine("fake").name == "fake"
    with pytest.raises(ValueError, match="'mos' is not known; allowed are builtin, fake, moss:FOLDER, moss:HUB_ID"):
        load_engine("mos")
    with pytest.raises(ValueError, match="'voice:x' is not known"):
        load_engine("voice:x")
    with pytest.raises(TypeError, match="engine: None is a NoneType"):
        load_engine(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nowhere' is no folder that exists"):
        load_engine(f"moss:{tmp_path / 'nowhere'}")


def test_bfloat16_weights_speak_too(tmp_path: Path) -> None:
    network = load_network(tiny_moss(tmp_path, sample_rate=RATE), torch.bfloat16)
    assert MossConfig.load(tmp_path / "config.json") == network.config
    stream = MossEngine(network, FakeCodec(), name="tiny").open([request(5)], 3, Sampling(text_temperature=0.0))
    chunk = stream.advance(6)
    assert chunk.lengths.tolist() == [6, 6, 6]
    assert len(chunk.frames.unique(dim=0)) == 3
