"""The MOSS-TTS-Nano config.json: what is read, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from codec.checkpoints.errors import ConfigError
from engine.nano.config import NanoConfig
from engine.nano.network import NanoNetwork
from tests.tiny_nano import tiny_nano_config

GOLDEN = Path(__file__).parent / "golden" / "moss_nano" / "config.json"


@pytest.fixture
def raw() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text())


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    target = raw[parents[0]] if parents else raw
    if value is None:
        del target[last]
    else:
        target[last] = value


def test_reads_the_sizes_of_the_bundle() -> None:
    config = NanoConfig.load(GOLDEN)
    backbone = config.backbone
    assert (config.books, config.codebook_sizes, config.audio_pad) == (16, (32,) * 16, 32)
    assert (backbone.hidden, backbone.layers, backbone.heads, backbone.kv_heads, backbone.head_dim) == (64, 2, 4, 4, 16)
    assert (backbone.feed_forward, backbone.vocabulary, backbone.rope_theta, backbone.norm_eps) == (96, 128, 1e4, 1e-5)
    assert (config.local.layers, config.local.feed_forward, config.local.norm_eps) == (1, 96, 1e-5)
    assert (config.ids.pad, config.ids.audio_end, config.ids.assistant_slot, config.sample_rate) == (3, 7, 9, 48_000)
    assert config.codec == "OpenMOSS-Team/MOSS-Audio-Tokenizer-Nano"


def test_the_published_sizes_give_the_published_parameters(raw: dict[str, Any]) -> None:
    """117,311,232 values with tied pairs counted once, and 194 names, of which 17 are copies."""
    gpt2 = {"vocab_size": 16_384, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072}
    raw |= {"audio_vocab_size": 1024, "audio_codebook_sizes": [1024] * 16, "audio_pad_token_id": 1024}
    raw["gpt2_config"] |= gpt2
    with torch.device("meta"):
        network = NanoNetwork(NanoConfig.from_json(raw))
    assert sum(parameter.numel() for parameter in network.parameters()) == 117_311_232
    assert len(network.state_dict()) == 194
    assert len(list(network.parameters())) == 177


@pytest.mark.parametrize("config", [tiny_nano_config(), NanoConfig.load(GOLDEN)])
def test_what_is_written_reads_back_unchanged(config: NanoConfig) -> None:
    assert NanoConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("audio_codebook_sizes", [32] * 15 + [8]),
        ("audio_codebook_sizes", None),
        ("gpt2_config.n_inner", None),
        ("gpt2_config.rope_base", 5e5),
        ("gpt2_config.layer_norm_epsilon", 1e-6),
        ("local_transformer_layers", 3),
        ("audio_end_token_id", 11),
        ("tie_word_embeddings", False),
    ],
)
def test_every_value_that_is_read_changes_the_config(raw: dict[str, Any], field: str, value: Any) -> None:
    before = NanoConfig.from_json(raw)
    put(raw, field, value)
    assert (NanoConfig.from_json(raw) != before) == (field != "audio_codebook_sizes" or value is not None)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model_type", "moss_tts_local", "model_type is 'moss_tts_local': only 'moss_tts_nano' is implemented"),
        ("model_architecture", "global_only", "model_architecture is 'global_only'"),
        ("gpt2_config", None, "gpt2_config is missing"),
        ("gpt2_config.activation_function", "relu", r"gpt2_config\.activation_function is 'relu': only 'gelu_new'"),
        ("gpt2_config.position_embedding_type", "absolute", r"position_embedding_type is 'absolute': only 'rope'"),
        ("gpt2_config.scale_attn_weights", False, "scale_attn_weights is False: only True"),
        ("gpt2_config.scale_attn_by_inverse_layer_idx", True, "scale_attn_by_inverse_layer_idx is True"),
        ("gpt2_config.add_cross_attention", True, "add_cross_attention is True"),
        ("gpt2_config.n_head", 5, r"gpt2_config\.n_embd is 64, which n_head = 5 does not divide"),
        ("gpt2_config.n_head", 0, r"which n_head = 0 does not divide"),
        ("gpt2_config.n_head", 64, "head_dim is 1: rotary positions need an even width"),
        ("gpt2_config.rope_base", None, r"gpt2_config\.rope_base is missing"),
        ("gpt2_config.layer_norm_epsilon", 0, "layer_norm_epsilon is 0: a number above 0"),
        ("gpt2_config.n_layer", "two", "n_layer is 'two': a whole number"),
        ("n_vq", None, "n_vq is missing"),
        ("n_vq", 8, "audio_codebook_sizes has 16 entries, n_vq says 8"),
        ("audio_vocab_size", 31, "audio_vocab_size is 31: it must be at least the largest"),
        ("audio_pad_token_id", 31, "audio_pad_token_id is 31, a real code of a book of 32"),
        ("audio_end_token_id", 128, "the id of audio_end is 128, outside the vocabulary of 128"),
        ("local_transformer_layers", None, "local_transformer_layers is missing"),
        ("audio_tokenizer_sample_rate", None, "audio_tokenizer_sample_rate is missing"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(
    raw: dict[str, Any], tmp_path: Path, field: str, value: Any, message: str
) -> None:
    put(raw, field, value)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match=rf"config\.json: .*{message}"):
        NanoConfig.load(tmp_path / "config.json")
