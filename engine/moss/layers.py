"""The parts that transformers of this family are made of: linear layers, norms, rotary positions, heads.

On a CPU in float32 with frozen weights a row's result does not depend on the other rows, bit by bit, provided that the
widths that elementwise kernels see are multiples of 32 (they round the remainder of the batch otherwise). It does not
know how blocks are put together.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ROWS = 8


def causal_attention(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """An `Attend` without memory: position t sees positions 0..t of the same call. Right padding needs no mask."""
    return F.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=query.shape[-3] != key.shape[-3]
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, whose rows do not depend on how many rows come together, once the weights are frozen.

    The CPU's matrix kernels round differently for fewer than four rows a thread; multiples of eight never get there.
    """
    if weight.requires_grad or x.device.type != "cpu":
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    missing = -len(rows) % _ROWS
    if missing:
        rows = F.pad(rows, (0, 0, 0, missing))
    out = F.linear(rows, weight, bias)
    return (out[:-missing] if missing else out).view(*x.shape[:-1], -1)


class Linear(nn.Linear):
    """A linear layer on `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    """Root mean square norm over the last axis: float32 inside, the input's dtype out, then the learned scale."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cuda":  # the same in one kernel and a product, where launches are what takes time
            return F.rms_norm(x, self.weight.shape, None, self.eps) * self.weight
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight


def rotary_angles(positions: Tensor, head_dim: int, base: float) -> Tensor:
    """Angles `[*, T, head_dim / 2]` float32 of positions `[*, T]`: position * base ** (-2j / head_dim)."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    return positions.float().unsqueeze(-1) * base**-exponents


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on pairs (j, j + d/2), the NeoX convention; x `[..., d]`, cos and sin `[..., d / 2]`."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotate_pairs(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions on pairs (2j, 2j + 1), the GPT-J convention; x `[..., d]`, turns complex64 `[..., d / 2]`."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[*, T, heads * d] -> [*, heads, T, d]`."""
    return x.reshape(*x.shape[:-1], heads, -1).transpose(-2, -3)


def merge_heads(x: Tensor) -> Tensor:
    """`[*, heads, T, d] -> [*, T, heads * d]`."""
    return x.transpose(-2, -3).flatten(-2)
