"""`moss:PLACE` from end to end on tiny voices in the published layout: speech, references, adapters, and what fails."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoints import WORKING, load_checkpoint
from engine.moss import codecs
from engine.moss.engine import MossEngine
from engine.registry import load_engine
from scorers.fake import FakeScorer
from search import ChunkSearch, Sampling, SpeechRequest
from tests.tiny_voice import BOOKS, CODEC_ID, tiny_voice

pytest.importorskip("tokenizers", reason="needs the package tokenizers: pip install tokenizers")

ADAPTER = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_voice(tmp_path_factory.mktemp("voices") / "voice")


@pytest.fixture
def folder(shared_folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(shared_folder, tmp_path / "voice"))


def said(engine: Any, text: str = "Hello there.", **fields: Any) -> torch.Tensor:
    stream = engine.open([SpeechRequest(text=text, **fields)], 2, Sampling(text_temperature=0.0))
    frames: torch.Tensor = stream.advance(6).frames
    return frames


def settings(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def write_adapter(folder: Path, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER | config))
    torch.manual_seed(1)
    module = "base_model.model.audio_lm_heads.0"
    tensors = {f"{module}.lora_A.weight": torch.randn(2, 32), f"{module}.lora_B.weight": torch.randn(16, 2)}
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_a_folder_speaks_with_its_tokenizer_and_its_codec(shared_folder: Path) -> None:
    engine = load_engine(f"moss:{shared_folder}")
    assert engine.name == f"moss:{shared_folder}"
    assert (engine.sample_rate, engine.hop) == (150, 12)
    result = ChunkSearch(engine, FakeScorer()).generate(
        SpeechRequest(text="Hello there. (sigh)", language="en", instruction="softly"), n=3, guidance=2.0, max_seconds=2
    )
    assert result.audio.shape == (len(result.frames) * 12,)
    assert np.isfinite(result.audio).all()
    assert result.frames.shape[1] == BOOKS


def test_text_instruction_language_and_reference_are_heard(shared_folder: Path) -> None:
    engine = load_engine(f"moss:{shared_folder}")
    pcm = np.sin(np.arange(150) / 3.0).astype(np.float32)
    said_so = [
        said(engine),
        said(engine, "Hello here."),
        said(engine, instruction="softly"),
        said(engine, language="German"),
        said(engine, reference=(pcm, 150)),
        said(engine, reference=(pcm[::-1].copy(), 150)),
    ]
    assert len(torch.stack(said_so).flatten(1).unique(dim=0)) == len(said_so)


def test_a_recording_is_encoded_once(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load_engine(f"moss:{shared_folder}")
    calls: list[int] = []
    codes = engine.codec.codes  # type: ignore[attr-defined]
    monkeypatch.setattr(engine.codec, "codes", lambda sound: calls.append(1) or codes(sound))
    pcm = np.sin(np.arange(150) / 3.0).astype(np.float32)
    request = SpeechRequest(text="Hello.", reference=(pcm, 150))
    engine.budget(request)
    engine.open([request, SpeechRequest(text="There.", reference=(pcm.copy(), 150))], 2, Sampling())
    assert len(calls) == 1
    engine.open([SpeechRequest(text="There.", reference=(pcm * 0.5, 150))], 2, Sampling())
    assert len(calls) == 2


@pytest.mark.parametrize("name", codecs.BESIDE)
def test_the_codec_is_found_beside_or_where_the_config_says(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said(load_engine(f"moss:{folder}"))
    elsewhere = (folder / "codec").rename(tmp_path / "elsewhere")
    monkeypatch.setattr(codecs, "located", lambda place, _files: {CODEC_ID: elsewhere}[place])
    assert torch.equal(said(load_engine(f"moss:{folder}")), before)
    monkeypatch.undo()
    elsewhere.rename(folder / name)
    assert torch.equal(said(load_engine(f"moss:{folder}")), before)


def test_a_codec_that_is_nowhere_is_missed_in_three_places(folder: Path) -> None:
    shutil.rmtree(folder / "codec")
    settings(folder, audio_tokenizer_name_or_path="nowhere")
    with pytest.raises(ValueError, match=r"neither in .*codec nor in .*audio_tokenizer, and audio_tokenizer_name_or_p"):
        load_engine(f"moss:{folder}")


def test_an_adapter_beside_the_weights_or_below_is_merged(folder: Path) -> None:
    plain = said(load_engine(f"moss:{folder}"))
    write_adapter(folder / "adapter")
    below = said(load_engine(f"moss:{folder}"))
    shutil.rmtree(folder / "adapter")
    assert not torch.equal(below, plain)
    write_adapter(folder)
    assert torch.equal(said(load_engine(f"moss:{folder}")), below)


def test_an_adapter_alone_opens_the_base_that_it_names(shared_folder: Path, tmp_path: Path) -> None:
    alone = write_adapter(tmp_path / "alone", base_model_name_or_path=str(shared_folder), revision="main")
    engine = load_engine(f"moss:{alone}")
    assert engine.name == f"moss:{alone}"
    base = load_engine(f"moss:{shared_folder}")
    assert not torch.equal(said(engine), said(base))
    write_adapter(alone, base_model_name_or_path="/home/trainer/base")
    with pytest.raises(
        ValueError, match=r"adapter_config\.json: base_model_name_or_path: '/home/trainer/base' is no fol"
    ):
        load_engine(f"moss:{alone}")
    write_adapter(alone)
    with pytest.raises(ValueError, match=r"adapter_config\.json: base_model_name_or_path is missing"):
        load_engine(f"moss:{alone}")


def unknown(folder: Path) -> None:
    settings(folder, model_type="moss_tts_delay")


def untyped(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def state_dict(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "model_bf16.pt").write_bytes(b"")


def fewer_books(folder: Path) -> None:
    settings(folder, n_vq=2, audio_codebook_sizes=[16] * 2)


def more_books_than_the_codec(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    settings(folder, n_vq=5, audio_codebook_sizes=[16] * 5, gpt2_config=raw["gpt2_config"] | {"n_positions": 6})


def larger_books(folder: Path) -> None:
    settings(folder, audio_codebook_sizes=[32] * 3, audio_vocab_size=32, audio_pad_token_id=32)


def other_rate(folder: Path) -> None:
    settings(folder, sampling_rate=24_000)


def no_tokenizer(folder: Path) -> None:
    (folder / "merges.txt").unlink()


def other_tokenizer(folder: Path) -> None:
    settings(folder, im_start_token_id=305)


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])


def missing(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["transformer.norm.weight"]
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (unknown, rf"config\.json: model_type is 'moss_tts_delay', which is not implemented; {WORKING[:60]}"),
        (untyped, r"config\.json: model_type is None, which is not implemented"),
        (
            state_dict,
            r"has no config\.json and holds checkpoints/model_bf16\.pt, which is no layout that is known here",
        ),
        (fewer_books, r"model\.safetensors: tensor audio_embeddings\.2\.weight has no place .* different checkpoints"),
        (more_books_than_the_codec, r"codec/config\.json: quantizer_kwargs\.num_quantizers is 4, 5 books were asked"),
        (larger_books, r"config\.json: audio_codebook_sizes is \[32, 32, 32\], the codec's books have \[16, 16, 16\]"),
        (other_rate, r"config\.json: sampling_rate is 24000, the codec's is 150: they were not trained together"),
        (no_tokenizer, r"tokenizer\.json does not exist, nor vocab\.json with merges\.txt: download"),
        (
            other_tokenizer,
            r"config\.json: im_start_token_id is 305, the tokenizer beside it reads <\|im_start\|> as \[301\]",
        ),
        (truncated, r"model\.safetensors is truncated .*: download it again"),
        (missing, r"tensor transformer\.norm\.weight of shape \[32\] is missing: download"),
    ],
)
def test_what_cannot_be_used_is_one_line(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    with pytest.raises(ValueError, match=message) as caught:
        load_engine(f"moss:{folder}")
    assert "\n" not in str(caught.value)


def test_the_settings_are_read_before_anything_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[tuple[str, ...]] = []
    monkeypatch.setattr("engine.checkpoints.located", lambda _place, files: fetched.append(files) or folder)
    unknown(folder)
    with pytest.raises(ValueError, match="moss_tts_delay"):
        load_checkpoint("laion/voice", CPU)
    assert fetched == [("config.json", "adapter_config.json", "adapter/adapter_config.json")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_dtype_is_the_callers(shared_folder: Path, dtype: torch.dtype) -> None:
    engine = load_engine(f"moss:{shared_folder}", dtype=dtype)
    assert isinstance(engine, MossEngine)
    assert said(engine).shape == (2, 6, BOOKS)
    assert engine.open([SpeechRequest(text="a")], 1, Sampling()).state.hidden.dtype == dtype
