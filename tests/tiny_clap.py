"""Random CLAP checkpoints in both formats, and what every test of them needs. What they find means nothing."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scorers.heads import Clip

Sound = NDArray[np.float32]
SIZES = {"num_hidden_layers": 1, "max_position_embeddings": 90, "pad_token_id": 1}


def write_tokenizer(folder: Path) -> int:
    """RoBERTa's tokenizer without merges: every byte is a token. Returns how many there are."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [chr(0x100 + place) for place in range(256 - len(printable))]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *map(chr, printable), *others]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({token: place for place, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return len(tokens)


def write_text_model(folder: Path) -> Path:
    """What stands in for RoBERTa's folder: one layer of its width, since the package knows no other."""
    sizes = {**SIZES, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 16, "type_vocab_size": 1}
    sizes["vocab_size"] = write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "roberta", **sizes}))
    return folder


def write_hub_folder(folder: Path, sample_rate: int = 48_000, **audio: Any) -> Path:
    """A folder as transformers writes it; `audio` are sizes of the audio network."""
    from transformers import ClapConfig, ClapFeatureExtractor, ClapModel, ClapProcessor, RobertaTokenizer

    vocabulary = write_tokenizer(folder)
    text = {**SIZES, "vocab_size": vocabulary, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    heard = {"depths": [1] * 4, "num_attention_heads": [1, 1, 2, 2], "patch_embeds_hidden_size": 8, "hidden_size": 64}
    config = ClapConfig(
        text_config={**text, "projection_dim": 16},
        audio_config={**heard, "projection_dim": 16, **audio},
        projection_dim=16,
    )
    ClapModel(config).save_pretrained(folder)
    tokenizer = RobertaTokenizer.from_pretrained(str(folder), local_files_only=True)
    ClapProcessor(ClapFeatureExtractor(sampling_rate=sample_rate, truncation="rand_trunc"), tokenizer).save_pretrained(
        folder
    )
    return folder


@contextmanager
def no_network() -> Iterator[list[Any]]:
    """Nothing is reached while this holds; yields the list of addresses that were asked for."""
    asked: list[Any] = []

    def refuse(*address: Any, **_: Any) -> Any:
        asked.append(address)
        raise OSError(f"a test tried to reach {address}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield asked


def judged(head: Any, prepared: Any, *clips: Sound) -> list[float]:
    found = head.judge([Clip(np.asarray(pcm, np.float32), 0, True, prepared) for pcm in clips])
    return [judgement.terms["clap"] for judgement in found]


def sounds() -> list[Sound]:
    """A short, a long, and a very short clip, float32 at 48 kHz."""
    generator = np.random.default_rng(0)
    return [(0.1 * generator.standard_normal(size)).astype(np.float32) for size in (100_000, 600_000, 4_000)]
