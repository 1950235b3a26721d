"""Matrix products that round the same whatever shares the batch. Knows shapes, not what is being multiplied.

On a CPU in float32 the result of one row must not depend on how many other rows there are, nor on how far padding
stretches an axis. The kernels behind `@` keep that promise only within limits found by trial (x86, torch 2.13):
at least four rows on the left, inner axes of at most 128, padding in multiples of 16.
"""

from __future__ import annotations

import torch
from torch import Tensor

ALIGN = 16
MIN_ROWS = 4
_BLOCK = 128


def aligned(length: int) -> int:
    """The next multiple of `ALIGN`."""
    return -(-length // ALIGN) * ALIGN


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`, [..., M, K] by [..., K, N]; fewer than four rows on the left are padded."""
    rows = left.shape[-2]
    if rows >= MIN_ROWS:
        return left @ right
    return (torch.nn.functional.pad(left, (0, 0, 0, MIN_ROWS - rows)) @ right)[..., :rows, :]


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """`weights @ values`, [..., M, L] by [..., L, d]; on a CPU in blocks, so that masked padding changes nothing."""
    if weights.shape[-1] <= _BLOCK or weights.device.type != "cpu":
        return product(weights, values)
    total = product(weights[..., :_BLOCK], values[..., :_BLOCK, :])
    for start in range(_BLOCK, weights.shape[-1], _BLOCK):
        total = total + product(weights[..., start : start + _BLOCK], values[..., start : start + _BLOCK, :])
    return total


def side_by_side(rows: Tensor) -> Tensor:
    """[G, N, H, M, x] to [G, H, N * M, x]: the rows of a group together, for one product with what they share."""
    return rows.transpose(1, 2).flatten(2, 3)


def row_by_row(together: Tensor, n: int) -> Tensor:
    """The inverse of `side_by_side`."""
    groups, heads, rows, width = together.shape
    return together.reshape(groups, heads, n, rows // n, width).transpose(1, 2)
