"""Networks whose speed is measured, with random weights of the published size or below, and what a frame reads.

Random weights are as fast as trained ones. Knows nothing of clocks.
"""

from __future__ import annotations

import torch
from torch import nn

from engine.moss.config import GlobalConfig, LocalConfig, MossConfig, SpecialIds
from engine.moss.engine import MossEngine
from engine.moss.frames import FrameNetwork
from engine.moss.layers import RMSNorm
from engine.moss.network import MossNetwork
from engine.registry import load_engine

RANDOM = "moss:random"
_STD = 0.02


def _config(
    hidden: int, layers: int, heads: int, head_dim: int, feed_forward: int, vocabulary: int, books: int, size: int
) -> MossConfig:
    """Four query heads share a key, as in the published checkpoints; the depth decoder is one block of the width."""
    pad, *others = range(vocabulary - 7, vocabulary)
    return MossConfig(
        backbone=GlobalConfig(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=heads // 4,
            head_dim=head_dim,
            feed_forward=feed_forward,
            vocabulary=vocabulary,
            rope_theta=1e6,
            norm_eps=1e-6,
        ),
        local=LocalConfig(layers=1, heads=heads, feed_forward=feed_forward, rope_base=1e6, norm_eps=1e-6),
        ids=SpecialIds(pad, *others),
        codebook_sizes=(size,) * books,
        audio_pad=size,
        sample_rate=48_000,
    )


SIZES = {
    "full": _config(2560, 36, 32, 128, 9728, 151_936, 12, 1024),  # MOSS-TTS-Local-Transformer-v1.5
    "small": _config(512, 8, 8, 64, 2048, 8192, 12, 1024),
    "tiny": _config(64, 2, 4, 16, 128, 256, 3, 32),
}


def random_network(size: str, device: torch.device, dtype: torch.dtype) -> MossNetwork:
    """Random weights, made where they are used and in their dtype: at full size there is no room for a detour."""
    with torch.device("meta"):
        network = MossNetwork(SIZES[size]).to(dtype)
    network.to_empty(device=device)
    network.tie()
    with torch.no_grad():
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=_STD)
        for module in network.modules():
            if isinstance(module, (nn.LayerNorm, RMSNorm)):
                nn.init.ones_(module.weight)
    return network.requires_grad_(False).eval()


def network_of(spec: str, size: str | None, device: torch.device) -> FrameNetwork:
    """The network to measure: random weights of a size, or those of an engine that speaks frames with one.

    Raises:
        ValueError: the size is unknown or has no meaning here, or the engine is not there or of another kind.
    """
    if spec != RANDOM:
        if size is not None:
            raise ValueError(f"size: {size!r} is for {RANDOM}; {spec} has the size of its weights")
        engine = load_engine(spec, device)
        if not isinstance(engine, MossEngine):
            raise ValueError(f"engine: {spec!r} has no frame step to measure; give {RANDOM}, builtin or moss:FOLDER")
        return engine.network
    size = size or usual_size(device)
    if size not in SIZES:
        raise ValueError(f"size: {size!r} is not known; allowed are {', '.join(SIZES)}")
    return random_network(size, device, torch.bfloat16 if device.type == "cuda" else torch.float32)


def usual_size(device: torch.device) -> str:
    """The published size where there is a GPU, a reduced one where there is none."""
    return "full" if device.type == "cuda" else "small"


def weight_bytes(network: FrameNetwork) -> int:
    """Bytes of weights that a frame reads: the global decoder once, the depth decoder at every depth, and the heads."""
    depths = network.spoken_books + network.decision_depths
    blocks = _bytes(network.transformer) - _bytes(network.text_embedding)  # of which only single rows are read
    heads = sum(_bytes(head) for head in network.audio_lm_heads[: network.spoken_books])
    return blocks + depths * _bytes(network.local_transformer) + heads


def position_bytes(network: FrameNetwork) -> int:
    """Bytes of keys and values of one position in the cache of the global decoder."""
    backbone = network.config.backbone
    return 2 * backbone.layers * backbone.kv_heads * backbone.head_dim * network.text_embedding.weight.element_size()


def _bytes(module: nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
