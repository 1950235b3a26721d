"""A tiny VoiceCLAP with random weights that hears one second, and what tests say to it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scorers.heads import Clip
from scorers.rereader import Rereader
from scorers.voiceclap.query import Query
from scorers.voiceclap.scorer import VoiceClapHead

BUNDLE = Path(__file__).parent / "golden" / "voiceclap_like"
HEADS = str(BUNDLE / "heads")
CPU = torch.device("cpu")
SECOND = 16_000
TOKENS = {"[UNK]": 1, "calm": 5, "angry": 9, "voice": 40}


def small_model(folder: Path) -> Path:
    """The bundle's model, cut to one second so that it is quick, with a tokenizer of four words."""
    tensors = load_file(BUNDLE / "model.safetensors")
    tensors["audio.encoder.positional_embedding"] = tensors["audio.encoder.positional_embedding"][:50].contiguous()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((BUNDLE / "config.json").read_text()) | {"n_ctx": 50}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'chunksearch[voiceclap]'")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(TOKENS, "[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    return folder


def head_of(scorer: Rereader) -> VoiceClapHead:
    assert isinstance(scorer.head, VoiceClapHead)
    return scorer.head


def clip(pcm: Tensor, prepared: Query | None = None) -> Clip:
    return Clip(pcm.numpy(), 0, False, prepared or Query(None, "nothing asked"))


def noise(samples: int, loudness: float = 0.1) -> Tensor:
    return torch.randn(samples) * loudness
