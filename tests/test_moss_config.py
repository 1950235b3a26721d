"""The MOSS-Local config.json: what is read, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from codec.checkpoints.errors import ConfigError
from engine.moss.config import MossConfig
from engine.moss.network import MossNetwork

GOLDEN = Path(__file__).parent / "golden" / "moss_local" / "config.json"


@pytest.fixture
def raw() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text())


def put(raw: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for copy in ("qwen3_config", "language_config") if parents == ["qwen3_config"] else parents or [""]:
        target = raw[copy] if copy else raw
        if value is None:
            target.pop(last, None)
        else:
            target[last] = value


def test_reads_the_sizes_of_the_bundle() -> None:
    config = MossConfig.load(GOLDEN)
    assert (config.books, config.codebook_sizes, config.audio_pad) == (12, (32,) * 12, 32)
    assert (config.backbone.layers, config.backbone.heads, config.backbone.kv_heads) == (2, 4, 2)
    assert (config.backbone.head_dim, config.backbone.hidden, config.local_head_dim) == (24, 64, 8)
    assert (config.backbone.rope_theta, config.local.rope_base) == (1e6, 1e6)
    assert (config.ids.audio_end, config.ids.assistant_slot, config.sample_rate) == (104, 106, 48_000)
    assert config.codec == "OpenMOSS-Team/MOSS-Audio-Tokenizer-v2"


def test_what_is_written_reads_back_unchanged(raw: dict[str, Any]) -> None:
    put(raw, "audio_codebook_sizes", [32, 8, 16] * 4)
    put(raw, "local_text_head_mode", "full_vocab")
    config = MossConfig.from_json(raw)
    assert MossConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
def test_rope_theta_is_found_where_newer_writers_put_it(raw: dict[str, Any], place: str) -> None:
    put(raw, "qwen3_config.rope_theta", None)
    put(raw, f"qwen3_config.{place}", {"rope_type": "default", "rope_theta": 5e5})
    assert MossConfig.from_json(raw).backbone.rope_theta == 5e5


def test_one_copy_of_the_global_sizes_is_enough(raw: dict[str, Any]) -> None:
    whole = MossConfig.from_json(raw)
    del raw["qwen3_config"]
    assert MossConfig.from_json(raw) == whole


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "moss_tts_delay"),
        ("n_vq", "twelve"),
        ("n_vq", 11),
        ("audio_codebook_sizes", [32.0] * 12),
        ("audio_pad_token_id", 31),
        ("pad_token_id", 128),
        ("im_start_token_id", None),
        ("local_text_head_mode", "ternary"),
        ("local_transformer_layers", True),
        ("tie_word_embeddings", "yes"),
        ("qwen3_config.tie_word_embeddings", False),
        ("hidden_size", 65),
        ("qwen3_config.attention_bias", True),
        ("qwen3_config.hidden_act", "gelu"),
        ("qwen3_config.use_sliding_window", True),
        ("qwen3_config.layer_types", ["full_attention", "sliding_attention"]),
        ("qwen3_config.num_key_value_heads", 3),
        ("qwen3_config.head_dim", 23),
        ("qwen3_config.rms_norm_eps", 0.0),
        ("qwen3_config.rope_theta", None),
        ("qwen3_config.rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("qwen3_config.rope_parameters", {"rope_theta": 1e6, "partial_rotary_factor": 0.5}),
        ("qwen3_config.rope_parameters", {"rope_theta": 5e5}),
        ("gpt2_config.activation_function", "gelu_new"),
        ("gpt2_config.position_embedding_type", "absolute"),
        ("gpt2_config.scale_attn_by_inverse_layer_idx", True),
        ("gpt2_config.n_embd", 32),
        ("gpt2_config.n_positions", 11),
        ("gpt2_config.rope_base", "large"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(raw: dict[str, Any], field: str, value: Any) -> None:
    put(raw, field, value)
    name = {"pad_token_id": "pad", "qwen3_config.rope_scaling": "rope_type"}.get(field, field.rpartition(".")[2])
    name = name if name != "rope_parameters" else "rope_theta is written twice|partial_rotary_factor is 0.5"
    with pytest.raises(ConfigError, match=name):
        MossConfig.from_json(raw)


def test_copies_that_disagree_are_refused(raw: dict[str, Any]) -> None:
    raw["language_config"]["num_hidden_layers"] = 3
    with pytest.raises(ConfigError, match="language_config"):
        MossConfig.from_json(raw)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ConfigError, match=r"config\.json does not exist"):
        MossConfig.load(path)
    path.write_text('{"model_type": ')
    with pytest.raises(ConfigError, match=r"config\.json cannot be read as JSON"):
        MossConfig.load(path)
    path.write_text('{"model_type": "qwen3"}')
    with pytest.raises(ConfigError, match=r"config\.json: model_type is 'qwen3'"):
        MossConfig.load(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match=r"config\.json holds a list, an object is needed"):
        MossConfig.load(path)


def test_the_published_sizes_give_the_published_parameters(raw: dict[str, Any]) -> None:
    """MOSS-TTS-Local-Transformer-v1.5: 438 tensors and 4,550,403,584 parameters, tied copies counted."""
    backbone = {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151_936,
        "rope_theta": 1_000_000,
        "layer_types": None,
    }
    for field, value in backbone.items():
        put(raw, f"qwen3_config.{field}", value)
    local = {"n_embd": 2560, "n_head": 32, "n_inner": 9728, "n_positions": 13, "n_ctx": 13}
    raw |= {"hidden_size": 2560, "local_hidden_size": 2560, "gpt2_config": raw["gpt2_config"] | local}
    raw |= {"audio_codebook_sizes": [1024] * 12, "audio_pad_token_id": 1024, "pad_token_id": 151_643}
    with torch.device("meta"):
        weights = MossNetwork(MossConfig.from_json(raw)).state_dict()
    assert len(weights) == 438
    assert sum(weight.numel() for weight in weights.values()) == 4_550_403_584
