"""Tiny MOSS-TTS-Nano checkpoints with random weights, written in the public layout: for tests of all but quality."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.moss.config import GlobalConfig, LocalConfig, SpecialIds
from engine.nano.checkpoint import tied_names
from engine.nano.config import NanoConfig
from engine.nano.network import NanoNetwork

HIDDEN = 32


def tiny_nano_config(books: Sequence[int] = (24, 24, 16), sample_rate: int = 48_000) -> NanoConfig:
    """Two global layers, one local layer, the released special ids."""
    return NanoConfig(
        backbone=GlobalConfig(
            hidden=HIDDEN,
            layers=2,
            heads=4,
            kv_heads=4,
            head_dim=8,
            feed_forward=64,
            vocabulary=96,
            rope_theta=1e4,
            norm_eps=1e-5,
        ),
        local=LocalConfig(layers=1, heads=4, feed_forward=64, rope_base=1e4, norm_eps=1e-5),
        ids=SpecialIds(pad=3, im_start=4, im_end=5, audio_start=6, audio_end=7, user_slot=8, assistant_slot=9),
        codebook_sizes=tuple(books),
        audio_pad=max(books),
        sample_rate=sample_rate,
    )


def tiny_nano_network(
    config: NanoConfig, seed: int = 0, stop: float = 0.06, spoken_books: int | None = None
) -> NanoNetwork:
    """Random weights that speak varied codes and stop with a chance of about `stop` at every frame."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NanoNetwork(config, spoken_books)
        for parameter in network.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=2.0 * parameter.shape[1] ** -0.5)
        with torch.no_grad():
            # A constant in the last norm's output carries the odds of stopping; the rest of the head adds some noise.
            network.local_transformer.ln_f.weight[0] = 0.0
            network.local_transformer.ln_f.bias[0] = 1.0
            head = network.text_lm_head.weight
            candidates = network.stop_candidates()
            head[candidates] *= 0.2
            head[candidates, 0] = torch.tensor([1.0 - stop, stop]).log()
    return network.requires_grad_(False).eval()


def stored_weights(network: NanoNetwork) -> dict[str, Tensor]:
    """One copy of every tied pair, under the embedding's name."""
    heads = dict(tied_names(network.config))
    return {name: weight.clone() for name, weight in network.state_dict().items() if name not in heads}


def tiny_nano(folder: Path, books: Sequence[int] = (24, 24, 16), *, seed: int = 0, sample_rate: int = 48_000) -> Path:
    """A tiny checkpoint folder in the MOSS-TTS-Nano layout with codebooks of these sizes; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_nano_config(books, sample_rate)
    save_file(stored_weights(tiny_nano_network(config, seed)), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    return folder
