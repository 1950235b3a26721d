"""A whole MOSS-TTS-Nano voice: the ten laws on a tiny checkpoint, its prompts, and how folder and codec are joined."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from codec.fake import FakeCodec
from engine.moss.config import SpecialIds
from engine.moss.engine import MossEngine
from engine.moss.packing import RowLayout, Tokenize
from engine.moss.references import Recording
from engine.nano import load_nano
from engine.nano.prompt import NanoPrompt, continuation
from engine.nano.tokenizer import load_tokenizer
from engine.registry import load_engine
from experiments.verify.moss_prompt import toy_tokenize
from scorers.fake import FakeScorer
from search import ChunkSearch, SpeechRequest
from search.config import Sampling
from tests.contracts import Laws, Subject
from tests.tiny_codec import tiny_codec
from tests.tiny_nano import tiny_nano, tiny_nano_config, tiny_nano_network

RATE = FakeCodec().sample_rate
CONFIG = tiny_nano_config(sample_rate=RATE)
IDS = CONFIG.ids

needs_sentencepiece = pytest.mark.skipif(
    find_spec("sentencepiece") is None, reason="needs the package sentencepiece: pip install sentencepiece"
)


def rows(length: int) -> Tensor:
    out = torch.full((length, 1 + CONFIG.books), CONFIG.audio_pad)
    out[:, 0] = torch.arange(length) % 50 + 10
    return out


def request(length: int, **fields: Any) -> SpeechRequest:
    return SpeechRequest(**{"text": "word " * length, "id": str(length), "prompt": rows(length), **fields})


class TestLaws(Laws):
    @pytest.fixture
    def subject(self) -> Subject:
        engine = MossEngine(tiny_nano_network(CONFIG, stop=0.02), FakeCodec(), name="tiny")
        return Subject(engine, FakeScorer(), [request(12), request(3), request(7)], examples=3)


class TestLawsUnderGuidanceWithFewerBooks(Laws):
    @pytest.fixture
    def subject(self) -> Subject:
        network = tiny_nano_network(CONFIG, stop=0.02, spoken_books=2)
        engine = MossEngine(network, FakeCodec(), name="tiny", default_guidance=2.0)
        requests = [request(length, unconditional=rows(2)) for length in (12, 3, 7)]
        return Subject(engine, FakeScorer(), requests, examples=3, sampling=Sampling(repetition_penalty=1.2))


def test_prompts_are_the_published_template_with_every_field_open() -> None:
    """Against ids that the reference packed for the larger voices: a bare text, and a continuation."""
    folder = Path(__file__).parent / "golden" / "moss_prompt"
    golden, raw = load_file(folder / "golden.safetensors"), json.loads((folder / "cases.json").read_text())
    raw["token_ids"].pop("audio_pad")
    tiny = tiny_nano_config((1024,) * raw["n_vq"])
    backbone = replace(tiny.backbone, vocabulary=151_936)
    config = replace(tiny, backbone=backbone, ids=SpecialIds(**raw["token_ids"]))
    bare, continued = raw["cases"][0], raw["cases"][6]
    prompt = NanoPrompt(config, toy_tokenize, lambda _: torch.zeros(0)).build(SpeechRequest(bare["user"]["text"]))
    assert torch.equal(prompt.conditional, golden["ids.0"])
    assert prompt.unconditional is None
    words = continued["user"]["text"]
    codes = golden[f"codes.{continued['prompt']}"]
    assert torch.equal(continuation(config, toy_tokenize, words[9:], spoken=words[:9], codes=codes), golden["ids.6"])


def letters(text: str) -> list[int]:
    """A tokenizer into the tiny vocabulary."""
    return [10 + ord(letter) % 80 for letter in text]


def test_a_reference_stands_in_the_template_instead_of_the_word_none() -> None:
    codes = torch.tensor([[1, 2, 3], [4, 5, 6]])
    heard: list[Recording] = []

    def encode(recording: Recording) -> Tensor:
        heard.append(recording)
        return codes

    builder = NanoPrompt(CONFIG, letters, encode)
    pcm = np.ones(100, np.float32)
    alone = builder.build(SpeechRequest("Hello.")).conditional
    cloned = builder.build(SpeechRequest("Hello.", reference=(pcm, 44_100))).conditional
    layout = RowLayout.of(CONFIG)
    voice = torch.cat(
        [
            layout.text_rows([IDS.audio_start]),
            layout.audio_rows(IDS.user_slot, codes),
            layout.text_rows([IDS.audio_end]),
        ]
    )
    start = 1 + len("user\n<user_inst>\n- Reference(s):\n")
    assert torch.equal(cloned, torch.cat([alone[:start], voice, alone[start + len("None") :]]))
    assert heard[0].sample_rate == 44_100
    assert np.array_equal(heard[0].pcm, pcm)


@pytest.mark.parametrize("field", ["language", "instruction", "voice"])
def test_fields_that_the_voice_cannot_read_are_refused(field: str) -> None:
    builder = NanoPrompt(CONFIG, letters, lambda _: torch.zeros(0))
    with pytest.raises(ValueError, match=f"^{field}: "):
        builder.build(SpeechRequest("Hello.", **{field: "English"}))


class TinyCodec(FakeCodec):
    """The fake codec with the sizes of a real one, and an encoder of sorts."""

    def __init__(self, book_sizes: Sequence[int] = CONFIG.codebook_sizes) -> None:
        super().__init__()
        self.book_sizes = book_sizes

    def encode(self, pcm: np.ndarray | Tensor, sample_rate: int) -> Tensor:
        frames = int(Fraction(pcm.shape[-1], sample_rate) * self.frame_rate)
        return torch.arange(frames * len(self.book_sizes)).view(frames, -1) % 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of the prompt's letters."""
    import sentencepiece

    place = tmp_path_factory.mktemp("model") / "tokenizer"
    text = "user <user_inst> Reference(s): None Instruction Tokens Quality Sound Event Ambient Language Text assistant"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text, "the quick brown fox jumps over the lazy dog", "Hello world."] * 20),
        model_prefix=str(place),
        vocab_size=80,
        model_type="bpe",
        character_coverage=1.0,
        user_defined_symbols="<pad>,<im_start>,<im_end>,<audio_start>,<audio_end>,<user_slot>,<assistant_slot>",
        minloglevel=2,
    )
    return place.with_suffix(".model")


@pytest.fixture
def folder(tmp_path: Path, model: Path) -> Path:
    folder = tiny_nano(tmp_path / "nano", sample_rate=RATE)
    (folder / "tokenizer.model").write_bytes(model.read_bytes())
    return folder


@needs_sentencepiece
@pytest.mark.parametrize("books", [3, 2])
def test_a_folder_speaks_a_text_in_the_voice_of_a_recording(folder: Path, books: int) -> None:
    engine = load_nano(folder, name="nano", codec=TinyCodec(CONFIG.codebook_sizes[:books]))
    spoken = SpeechRequest("Hello world.", reference=(np.zeros(RATE * 2, np.float32), RATE))
    result = ChunkSearch(engine, FakeScorer()).generate(spoken, n=4, max_seconds=2.0)
    assert len(result.audio) == len(result.frames) * engine.hop
    assert result.frames.shape[1] == books
    assert 0 < len(result.frames) <= 25
    other = ChunkSearch(engine, FakeScorer()).generate(SpeechRequest("Hello world."), n=4, max_seconds=2.0)
    assert not np.array_equal(other.audio, result.audio), "the recording was not heard"


@needs_sentencepiece
def test_a_folder_as_it_was_released_speaks_through_its_codec(tmp_path: Path, model: Path) -> None:
    """Weights as `.bin`, the codec of the same family beside them; streamed audio is the codec's own decode."""
    folder = tiny_nano(tmp_path / "nano", (16,) * 4, sample_rate=1200)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    (folder / "tokenizer.model").write_bytes(model.read_bytes())
    tiny_codec(folder / "codec", "nano")
    engine = load_engine(f"moss:{folder}")
    spoken = SpeechRequest("Hello world.", reference=(np.random.default_rng(0).normal(0, 0.1, 2400), 1200))
    result = ChunkSearch(engine, FakeScorer()).generate(spoken, n=4, chunk_frames=3, max_seconds=2.0)
    offline = engine.codec.decode(result.frames)
    assert len(offline) == len(result.frames) * engine.hop > 0
    np.testing.assert_allclose(result.audio, offline.numpy(), rtol=1e-4, atol=1e-4)


@needs_sentencepiece
def test_the_tokenizer_gives_ids_as_they_are(folder: Path) -> None:
    import sentencepiece

    tokenize: Tokenize = load_tokenizer(folder)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert tokenize("Hello world.") == reference.encode_as_ids("Hello world.")
    assert reference.decode(tokenize("Hello world.")) == "Hello world."


@needs_sentencepiece
def test_a_tokenizer_that_is_damaged_or_missing_is_named(folder: Path) -> None:
    path = folder / "tokenizer.model"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(CheckpointError, match=r"tokenizer\.model is no readable SentencePiece model .*: download"):
        load_nano(folder, name="nano", codec=TinyCodec())
    path.unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.model does not exist: download"):
        load_nano(folder, name="nano", codec=TinyCodec())


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.model").touch()
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match=r"sentencepiece is not installed.*pip install sentencepiece"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("sizes", [(24, 24, 16, 16), (24, 16), ()])
def test_a_codec_of_other_books_is_refused(tmp_path: Path, sizes: Sequence[int]) -> None:
    folder = tiny_nano(tmp_path, sample_rate=RATE)
    with pytest.raises(ValueError, match=r"config\.json: audio_codebook_sizes is \[24, 24, 16\], .*Tokenizer-Nano"):
        load_nano(folder, name="nano", codec=TinyCodec(sizes))


def test_a_codec_at_another_rate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"audio_tokenizer_sample_rate is 48000, the codec's is {RATE}"):
        load_nano(tiny_nano(tmp_path), name="nano", codec=TinyCodec())
