"""Tiny checkpoints with random weights, written in the public layouts: for tests of everything but quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from engine.moss.checkpoint import save_network
from engine.moss.config import GlobalConfig, LocalConfig, MossConfig, SpecialIds
from engine.moss.network import MossNetwork

HIDDEN = 32
TINY_BOOKS = (24, 24, 16)


def tiny_moss_config(books: Sequence[int] = TINY_BOOKS, sample_rate: int = 24_000) -> MossConfig:
    """Two global layers with grouped queries, one local layer, the built-in voice's text ids."""
    return MossConfig(
        backbone=GlobalConfig(
            hidden=HIDDEN,
            layers=2,
            heads=4,
            kv_heads=2,
            head_dim=8,
            feed_forward=64,
            vocabulary=192,
            rope_theta=1e4,
            norm_eps=1e-6,
        ),
        local=LocalConfig(layers=1, heads=4, feed_forward=64, rope_base=1e4, norm_eps=1e-6),
        ids=SpecialIds(
            pad=180, im_start=181, im_end=182, audio_start=183, audio_end=184, user_slot=185, assistant_slot=186
        ),
        codebook_sizes=tuple(books),
        audio_pad=max(books),
        sample_rate=sample_rate,
    )


def tiny_moss_network(config: MossConfig, seed: int = 0, stop: float = 0.06) -> MossNetwork:
    """Random weights that speak varied codes and stop with a chance of about `stop` at every frame."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = MossNetwork(config)
        for parameter in network.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=2.0 * parameter.shape[1] ** -0.5)
        with torch.no_grad():
            # A constant in the last norm's output carries the odds of stopping; the rest of the head adds some noise.
            constant = torch.zeros(HIDDEN)
            constant[0] = 1.0
            network.local_transformer.ln_f.weight[0] = 0.0
            network.local_transformer.ln_f.bias.copy_(constant)
            if config.text_head_mode == "binary":
                head = network.local_text_lm_head.weight.mul_(0.2)
                head[:, 0] = torch.tensor([1.0 - stop, stop]).log()
    return network.requires_grad_(False).eval()


def tiny_moss(folder: Path, books: Sequence[int] = TINY_BOOKS, *, seed: int = 0, sample_rate: int = 24_000) -> Path:
    """A tiny checkpoint folder in the MOSS-TTS-Local layout with codebooks of these sizes; returns the folder."""
    save_network(tiny_moss_network(tiny_moss_config(books, sample_rate), seed), folder)
    return folder
