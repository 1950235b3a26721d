"""Codec folders in the public layouts of MOSS-Audio-Tokenizer, with random weights; and the published sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from codec.moss.codec import MossCodecNetwork
from codec.moss.config import MossCodecConfig
from codec.moss.network import ProjectedTransformer

Kind = Literal["first", "second", "nano"]
KINDS: tuple[Kind, ...] = ("first", "second", "nano")
Part = int | tuple[int, int, int, int, int, int, float | None]
"""A patch, or a transformer: inputs, outputs, width, heads, layers, feed-forward width, seconds of context."""

_BIG, _WIDE = (768, 12, 12, 3072), (1280, 20, 32, 5120)
_DEEP, _FLAT = (256, 4, 4, 1024), (256, 4, 2, 1024)

PUBLISHED: dict[Kind, tuple[list[Part], list[Part]]] = {
    "first": (
        [
            240, (240, 384, *_BIG, None), 2, (768, 384, *_BIG, None), 2, (768, 640, *_BIG, None),
            2, (1280, 768, *_WIDE, None),
        ],
        [
            (768, 1280, *_WIDE, None), 2, (640, 768, *_BIG, None), 2, (384, 768, *_BIG, None),
            2, (384, 240, *_BIG, None), 240,
        ],
    ),
    "second": (
        [
            240, (240, 384, *_BIG, 1.0), 2, (768, 384, *_BIG, 2.0), 2, (768, 384, *_BIG, 4.0),
            2, (768, 384, *_BIG, 8.0), 2, (768, 640, *_BIG, 10.0), 2, (1280, 768, *_WIDE, 10.0),
        ],
        [
            (768, 1280, *_WIDE, 10.0), 2, (640, 768, *_BIG, 10.0), 2, (384, 768, *_BIG, 8.0), 2, (384, 768, *_BIG, 4.0),
            2, (384, 768, *_BIG, 2.0), 2, (384, 240, *_BIG, 1.0), 240,
        ],
    ),
    "nano": (
        [
            240, (240, 384, *_DEEP, 4.0), 2, (768, 384, *_FLAT, 6.0), 2, (768, 384, *_FLAT, 8.0), 2,
            (768, 192, *_DEEP, 10.0), 4,
        ],
        [
            4, (192, 768, *_DEEP, 10.0), 2, (384, 768, *_FLAT, 8.0), 2, (384, 768, *_FLAT, 6.0), 2,
            (384, 240, *_DEEP, 4.0), 240,
        ],
    ),
}  # fmt: skip

_TINY: dict[Kind, tuple[list[Part], list[Part]]] = {
    "first": (
        [6, (6, 8, 16, 2, 1, 32, None), 2, (16, 16, 16, 4, 2, 48, None)],
        [(16, 32, 32, 4, 2, 64, None), 2, (16, 6, 16, 2, 1, 32, None), 6],
    ),
    "second": (
        [6, (6, 8, 16, 2, 2, 32, 0.1), 2, (16, 10, 24, 4, 1, 48, 0.2), 2, (20, 16, 32, 4, 2, 64, 0.4)],
        [(16, 32, 32, 4, 2, 64, 0.4), 2, (16, 20, 24, 4, 1, 48, 0.32), 2, (10, 6, 16, 2, 2, 32, 0.2), 6],
    ),
    "nano": (
        [6, (6, 8, 16, 2, 2, 32, 0.05), 2, (16, 8, 16, 2, 1, 32, 0.1), 2, (16, 8, 16, 2, 1, 32, 0.2), 2,
         (16, 4, 16, 2, 2, 32, 0.4), 4],
        [4, (4, 16, 16, 2, 2, 32, 0.4), 2, (8, 16, 16, 2, 1, 32, 0.2), 2, (8, 16, 16, 2, 1, 32, 0.1), 2,
         (8, 6, 16, 2, 2, 32, 0.05), 6],
    ),
}  # fmt: skip

_TINY_HOP: dict[Kind, int] = {"first": 12, "second": 12, "nano": 96}
_FIRST_NAMES = ((".self_attn.in_proj.", ".self_attn.in_projs.0."), (".self_attn.out_proj.", ".self_attn.out_projs.0."),
                (".ffn.0.", ".linear1."), (".ffn.2.", ".linear2."))  # fmt: skip


def published_config(kind: Kind) -> dict[str, Any]:
    """`config.json` of the published checkpoints, as far as the arithmetic goes."""
    books = 16 if kind == "nano" else 32
    quantizer = (768, 512, 768, books, 1024, 8)
    return _config(kind, PUBLISHED[kind], 24_000 if kind == "first" else 48_000, quantizer, seconds=10.0)


def tiny_config(kind: Kind) -> dict[str, Any]:
    """The same structure, a few channels wide: 12.5 frames a second, four books of 16."""
    return _config(kind, _TINY[kind], 25 * _TINY_HOP[kind] // 2, (16, 20, 16, 4, 16, 8), seconds=0.4)


def tiny_codec(folder: Path, kind: Kind, *, seed: int = 0, old_weight_norm: bool = False) -> Path:
    """A codec folder of that kind; `old_weight_norm` writes `weight_g` and `weight_v`. Returns the folder."""
    return write_codec(folder, tiny_config(kind), seed=seed, old_weight_norm=old_weight_norm)


def write_codec(folder: Path, config: dict[str, Any], *, seed: int = 0, old_weight_norm: bool = False) -> Path:
    """A folder with this `config.json`, and random weights under the names that its version has."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = random_network(MossCodecConfig.load(folder / "config.json"))
        save_file(
            stored_weights(network, "number_channels" not in config, old_weight_norm), folder / "model.safetensors"
        )
    return folder


def random_network(config: MossCodecConfig) -> MossCodecNetwork:
    """Layers that matter, so that a wrong one is heard: branches are scaled by about a half, norms are not trivial."""
    network = MossCodecNetwork(config).requires_grad_(False)
    for name, weight in network.named_parameters():
        if "layer_scale" in name:
            nn.init.uniform_(weight, 0.3, 0.7)
        elif ".norm" in name:
            nn.init.normal_(weight, mean=float(name.endswith("weight")), std=0.1)
        elif weight.ndim == 2 and "codebook" not in name:
            nn.init.normal_(weight, std=1.2 * weight.shape[1] ** -0.5)
    last = network.decoder[-2]
    assert isinstance(last, ProjectedTransformer)
    last.output_proj.weight.mul_(0.03)  # sound of about full scale
    return network


def stored_weights(network: nn.Module, first_version: bool, old_weight_norm: bool) -> dict[str, Tensor]:
    """The network's tensors under public names, with the quantiser's products as gain and direction."""
    gain, direction = (
        ("weight_g", "weight_v") if old_weight_norm else tuple(f"parametrizations.weight.original{i}" for i in (0, 1))
    )
    stored = {}
    for name, weight in network.state_dict().items():
        if name.startswith("quantizer.") and name.endswith("_proj.weight"):
            stem = name.removesuffix("weight")
            stored[stem + gain] = weight.norm(dim=1)[:, None, None]
            stored[stem + direction] = (weight * (0.5 + torch.rand(len(weight), 1)))[..., None]
            continue
        if first_version:
            for new, old in _FIRST_NAMES:
                name = name.replace(new, old)
        stored[name] = weight
    return stored


def _config(
    kind: Kind, parts: tuple[list[Part], list[Part]], rate: int, quantizer: tuple[int, ...], seconds: float
) -> dict[str, Any]:
    names = ("input_dim", "rvq_dim", "output_dim", "num_quantizers", "codebook_size", "codebook_dim")
    stereo = {"number_channels": 2, "enable_channel_interleave": True, "compute_dtype": "fp32"}
    return {
        "model_type": "speech_tokenizer" if kind == "first" else "moss-audio-tokenizer",
        "sampling_rate": rate,
        "sample_rate": rate,
        "downsample_rate": rate * 2 // 25,
        "causal_transformer_context_duration": seconds,
        "encoder_kwargs": [_module(part) for part in parts[0]],
        "decoder_kwargs": [_module(part) for part in parts[1]],
        "quantizer_type": "rlfq",
        "quantizer_kwargs": dict(zip(names, quantizer, strict=True)),
    } | ({} if kind == "first" else stereo)


def _module(part: Part) -> dict[str, Any]:
    if isinstance(part, int):
        return {"module_type": "PatchedPretransform", "patch_size": part}
    names = ("input_dimension", "output_dimension", "d_model", "num_heads", "num_layers", "dim_feedforward")
    module: dict[str, Any] = {"module_type": "Transformer", **dict(zip(names, part[:6], strict=True))}
    module |= {"causal": True, "norm": "layer_norm", "positional_embedding": "rope", "max_period": 10000}
    module |= {"gating": "none", "layer_scale": 0.01, "conv_layout": True}
    return module if part[6] is None else module | {"context_duration": part[6]}
