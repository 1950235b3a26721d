"""GPT-2-style blocks with rotary positions on neighbouring pairs, and the depth decoder that is built of them.

Attention is an argument. It does not know what the positions are: codebooks of a frame here, frames elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.moss.config import LocalConfig
from engine.moss.layers import Linear, merge_heads, rotary_angles, rotate_pairs, split_heads
from search.state import Attend

Activation = Callable[[Tensor], Tensor]


@lru_cache
def depth_turns(depths: int, head_dim: int, base: float, device: torch.device) -> Tensor:
    """exp(i * angle) of depths 0..depths - 1, complex64 `[depths, head_dim / 2]`; kept: every frame asks."""
    with torch.inference_mode(False):  # or a table first made by a search could not be trained with later
        angles = rotary_angles(torch.arange(depths, device=device), head_dim, base)
        return torch.polar(torch.ones_like(angles), angles)


class Gpt2Attention(nn.Module):
    """Self-attention; `c_attn` holds query, key and value in that order, as plain linear layers."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = Linear(hidden, 3 * hidden)
        self.c_proj = Linear(hidden, hidden)

    def forward(self, x: Tensor, turns: Tensor, layer: int, attend: Attend) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.c_attn(x).chunk(3, dim=-1))
        attended = attend(layer, rotate_pairs(query, turns), rotate_pairs(key, turns), value)
        return cast(Tensor, self.c_proj(merge_heads(attended)))


class Gpt2FeedForward(nn.Module):
    """fc_out(activation(fc_in(x)))."""

    def __init__(self, hidden: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.fc_in = Linear(hidden, inner)
        self.fc_out = Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc_out(self.activation(self.fc_in(x))))


class Gpt2Block(nn.Module):
    """Pre-norm block with biased layer norms; `turns` are complex64 and broadcast to `[*, heads, T, d / 2]`."""

    def __init__(self, hidden: int, config: LocalConfig, activation: Activation) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.attn = Gpt2Attention(hidden, config.heads)
        self.ln_2 = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.mlp = Gpt2FeedForward(hidden, config.feed_forward, activation)

    def forward(self, x: Tensor, turns: Tensor, layer: int, attend: Attend) -> Tensor:
        x = x + self.attn(self.ln_1(x), turns, layer, attend)
        return cast(Tensor, x + self.mlp(self.ln_2(x)))


class LocalDecoder(nn.Module):
    """The transformer over the codebooks of one frame; rotary position = depth."""

    def __init__(self, hidden: int, depths: int, config: LocalConfig, activation: Activation = F.silu) -> None:
        super().__init__()
        self.h = nn.ModuleList(Gpt2Block(hidden, config, activation) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.depths, self.head_dim, self.rope_base = depths, hidden // config.heads, config.rope_base

    def forward(self, x: Tensor, first: int, attend: Attend) -> Tensor:
        """Inputs x `[*, D, H]` at depths first..first + D - 1 -> hidden `[*, D, H]` after the final norm."""
        turns = depth_turns(self.depths, self.head_dim, self.rope_base, x.device)[first : first + x.shape[-2]]
        for index, block in enumerate(self.h):
            x = block(x, turns, index, attend)
        return cast(Tensor, self.ln_f(x))
