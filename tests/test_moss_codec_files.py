"""Codec folders: the published sizes, every accepted form, and one-line errors with a cure for all others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from codec.checkpoints.errors import CheckpointError
from codec.moss import load_moss_codec
from codec.moss.codec import MossCodecNetwork
from codec.moss.config import MossCodecConfig, TransformerConfig
from codec.moss.network import rotation
from tests.checkpoint_files import Weights, rewrite, same, shard
from tests.tiny_codec import Kind, published_config, stored_weights, tiny_codec, tiny_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_codec(tmp_path / "codec", "second")


def message_of(folder: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as error:
        load_moss_codec(folder, **options)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def state_of(folder: Path) -> Weights:
    return load_moss_codec(folder).network.state_dict()


def put(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    target: Any = config
    for step in parents:
        target = target[int(step)] if isinstance(target, list) else target[step]
    if value is None:
        del target[last]
    else:
        target[last] = value


@pytest.mark.parametrize(
    ("kind", "tensors", "parameters", "contexts", "hop"),
    [
        ("first", 1600, 1_774_566_400, [125, 250, 500, 1000], 1920),
        ("second", 2094, 2_123_701_248, [125, 250, 400, 400, 400, 400], 3840),
        ("nano", 374, 21_969_664, [500, 800, 1200, 1600], 3840),
    ],
)
def test_published_sizes(
    tmp_path: Path, kind: Kind, tensors: int, parameters: int, contexts: list[int], hop: int
) -> None:
    """Counts are those of the published files, so that every tensor in them has its place and its shape."""
    (tmp_path / "config.json").write_text(json.dumps(published_config(kind)))
    config = MossCodecConfig.load(tmp_path / "config.json")
    with torch.device("meta"):
        stored = stored_weights(MossCodecNetwork(config), kind == "first", old_weight_norm=False)
    assert (len(stored), sum(weight.numel() for weight in stored.values())) == (tensors, parameters)
    assert [part.context for part in config.decoder if isinstance(part, TransformerConfig)] == contexts
    assert (config.hop, config.frame_rate * 2) == (hop, 25)


def test_modules_without_a_context_see_as_far_as_the_shortest_of_the_encoder(tmp_path: Path) -> None:
    raw = tiny_config("second")
    put(raw, "decoder_kwargs.0.context_duration", None)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    first = MossCodecConfig.load(tmp_path / "config.json").decoder[0]
    assert isinstance(first, TransformerConfig)
    assert first.context == round(0.1 * 12.5)


@pytest.mark.parametrize(("kind", "context"), [("first", 5), ("second", 6)])
def test_the_first_version_cuts_a_context_off_where_the_second_rounds(tmp_path: Path, kind: Kind, context: int) -> None:
    raw = tiny_config(kind)
    for module in raw["encoder_kwargs"] + raw["decoder_kwargs"]:
        module.pop("context_duration", None)
    (tmp_path / "config.json").write_text(json.dumps(raw | {"causal_transformer_context_duration": 5.6 / 12.5}))
    first = MossCodecConfig.load(tmp_path / "config.json").decoder[0]
    assert isinstance(first, TransformerConfig)
    assert first.context == context


def test_rotary_periods_are_those_of_each_module(folder: Path) -> None:
    codes = torch.randint(0, 16, (6, 4))
    usual = load_moss_codec(folder).decode(codes)
    for module in (0, 2, 4):
        raw = tiny_config("second")
        put(raw, f"decoder_kwargs.{module}.max_period", 50)
        (folder / "config.json").write_text(json.dumps(raw))
        assert (load_moss_codec(folder).decode(codes) - usual).abs().max() > 1e-3
    turn = rotation(torch.tensor([[0, 7]]), 6, 50.0)
    angles = torch.tensor([7.0 * 50.0 ** (-pair / 3) for pair in range(3)])
    assert torch.allclose(torch.view_as_real(turn)[0, 1], torch.stack([angles.cos(), angles.sin()], -1))


@pytest.mark.parametrize("kind", ["first", "second", "nano"])
def test_both_spellings_of_weight_normalisation_are_one_codec(tmp_path: Path, kind: Kind) -> None:
    new = tiny_codec(tmp_path / "new", kind)
    old = tiny_codec(tmp_path / "old", kind, old_weight_norm=True)
    assert any(name.endswith("weight_g") for name in load_file(old / "model.safetensors"))
    assert same(state_of(new), state_of(old))


def test_the_first_version_is_known_by_its_fields_not_by_its_model_type(tmp_path: Path) -> None:
    folder = tiny_codec(tmp_path / "codec", "first")
    expected = state_of(folder)
    raw = tiny_config("first") | {"model_type": "moss-audio-tokenizer"}
    (folder / "config.json").write_text(json.dumps(raw))
    assert same(state_of(folder), expected)
    assert "decoder.0.output_proj.weight" not in expected


def test_weights_are_float32_but_for_the_products_of_the_decoder(folder: Path) -> None:
    state = load_moss_codec(folder, dtype=torch.bfloat16).network.state_dict()
    halves = {name for name, weight in state.items() if weight.dtype == torch.bfloat16}
    assert halves == {name for name, weight in state.items() if name.startswith("decoder.") and weight.ndim == 2}
    raw = tiny_config("second") | {"compute_dtype": "bf16"}
    (folder / "config.json").write_text(json.dumps(raw))
    assert load_moss_codec(folder).dtype == torch.bfloat16


def test_shards_are_found_through_their_index(folder: Path) -> None:
    expected = state_of(folder)
    shard(folder)
    assert same(state_of(folder), expected)
    path = folder / "b.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    assert "b.safetensors is truncated" in message_of(folder)
    path.unlink()
    assert "b.safetensors does not exist: download it again" in message_of(folder)
    (folder / "model.safetensors.index.json").write_text("[]")
    assert "index.json has no readable weight_map" in message_of(folder)


@pytest.mark.parametrize("keep", [0, 5, 2000, -1])
def test_a_truncated_file_is_named(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    message = message_of(folder)
    assert "model.safetensors is truncated" in message
    assert "download it again" in message


def missing(weights: Weights) -> None:
    del weights["encoder.3.transformer.layers.0.ffn.2.weight"]


def missing_gain(weights: Weights) -> None:
    del weights["quantizer.quantizers.2.in_proj.parametrizations.weight.original0"]


def wrong_shape(weights: Weights) -> None:
    weights["decoder.2.input_proj.weight"] = torch.zeros(24, 15)


def smaller_book(weights: Weights) -> None:
    name = "quantizer.quantizers.1.codebook.weight"
    weights[name] = weights[name][:-1].contiguous()


def another_book(weights: Weights) -> None:
    weights["quantizer.quantizers.4.codebook.weight"] = torch.zeros(16, 8)


def integers(weights: Weights) -> None:
    weights["decoder.0.input_proj.weight"] = torch.ones(32, 16, dtype=torch.int64)


def not_a_number(weights: Weights) -> None:
    weights["decoder.0.transformer.layers.1.norm2.bias"][3] = torch.nan


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (missing, ["encoder.3.transformer.layers.0.ffn.2.weight", "[24, 48]", "missing", "download"]),
        (missing_gain, ["quantizers.2.in_proj.parametrizations.weight.original0", "missing", "download"]),
        (wrong_shape, ["decoder.2.input_proj.weight has shape [24, 15]", "asks for [24, 16]", "download both"]),
        (smaller_book, ["quantizers.1.codebook.weight has shape [15, 8]", "asks for [16, 8]", "download both"]),
        (another_book, ["quantizers.4.codebook.weight has no place", "download both"]),
        (integers, ["decoder.0.input_proj.weight is stored as I64; allowed are F16, BF16, F32", "download"]),
        (not_a_number, ["decoder.0.transformer.layers.1.norm2.bias is not finite", "download"]),
    ],
)
def test_damaged_weights_are_named_with_a_cure(
    folder: Path, damage: Callable[[Weights], None], words: list[str]
) -> None:
    rewrite(folder, damage)
    message = message_of(folder)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model_type", "dac", "model_type is 'dac': only 'moss-audio-tokenizer' or 'speech_tokenizer'"),
        ("sampling_rate", 151, "sample_rate is 150: sampling_rate is 151, and the two must be equal"),
        ("downsample_rate", None, "downsample_rate is missing: a whole number above 0"),
        ("downsample_rate", 10, "encoder_kwargs[0].patch_size is 6: it must divide the 20 positions"),
        ("downsample_rate", 24, "encoder_kwargs ends with 16 channels and 2 positions a frame; 16 and 1 are needed"),
        ("number_channels", 3, "number_channels is 3: 1 or 2"),
        ("enable_channel_interleave", False, "enable_channel_interleave is False: only True"),
        ("compute_dtype", "fp8", "compute_dtype is 'fp8': only 'fp32' or 'bf16'"),
        ("quantizer_type", "rvq", "quantizer_type is 'rvq': only 'rlfq'"),
        ("quantizer_kwargs.num_quantizers", True, "quantizer_kwargs.num_quantizers is True: a whole number above 0"),
        ("quantizer_kwargs.num_quantizers", 5, "quantizers.4.in_proj.weight of shape [8, 20]"),
        ("quantizer_kwargs.num_quantizers", 3, "quantizers.3.codebook.weight has no place"),
        ("quantizer_kwargs.input_dim", 12, "encoder_kwargs ends with 16 channels and 1 positions a frame; 12 and 1"),
        ("decoder_kwargs", [], "decoder_kwargs is []: a list of objects"),
        ("decoder_kwargs.0.module_type", "Conv", "decoder_kwargs[0].module_type is 'Conv'"),
        ("decoder_kwargs.0.causal", False, "decoder_kwargs[0].causal is False: only True"),
        ("decoder_kwargs.0.norm", "rms_norm", "decoder_kwargs[0].norm is 'rms_norm': only 'layer_norm'"),
        ("decoder_kwargs.0.gating", "silu", "decoder_kwargs[0].gating is 'silu': only 'none'"),
        ("decoder_kwargs.0.layer_scale", None, "decoder_kwargs[0].layer_scale is missing"),
        ("decoder_kwargs.0.positional_embedding", "sin", "positional_embedding is 'sin': only 'rope'"),
        ("decoder_kwargs.0.max_period", 0, "decoder_kwargs[0].max_period is 0: a number above 0"),
        ("decoder_kwargs.0.num_heads", 5, "decoder_kwargs[0].d_model is 32: it must be an even multiple of num_heads"),
        ("decoder_kwargs.2.input_dimension", 12, "decoder_kwargs[2].input_dimension is 12: 16 channels arrive"),
        ("decoder_kwargs.1.patch_size", 3, "decoder_kwargs[1].patch_size is 3: it must divide the 32 channels"),
        ("encoder_kwargs.1.context_duration", 1e-4, "encoder_kwargs[1].context_duration is 0.0001: it must be long"),
    ],
)
def test_what_a_config_cannot_ask_for_is_named(folder: Path, path: str, value: Any, words: str) -> None:
    raw = tiny_config("second")
    put(raw, path, value)
    (folder / "config.json").write_text(json.dumps(raw))
    assert words in message_of(folder)


def test_other_misuse_is_named(folder: Path) -> None:
    assert "num_quantizers is 4, 12 books were asked for: give 1 to 4" in message_of(folder, books=12)
    assert "0 books were asked for" in message_of(folder, books=0)
    (folder / "config.json").write_text('{"model_type"')
    assert "config.json cannot be read as JSON" in message_of(folder)
    (folder / "config.json").unlink()
    assert "config.json does not exist: give a codec folder" in message_of(folder)
    folder = tiny_codec(folder, "second")
    (folder / "model.safetensors").unlink()
    assert "model.safetensors does not exist: download it again" in message_of(folder)
    (folder / "pytorch_model.bin").touch()
    assert "does not exist: the folder holds pickled weights instead (pytorch_model.bin)" in message_of(folder)
