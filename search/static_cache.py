"""A branch cache that grows one position at a time without the host: lengths are tensors, shapes do not follow them.

What it does for a position can be recorded once and run again, as CUDA graphs are. It does not know who records it,
nor when there is no room left: whoever runs it says so beforehand with `reserve`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from search.state import BranchCache, Step


class StaticCache(BranchCache):
    """Between blocks of positions it is a `BranchCache` like any other; a block goes `begin`, `step`s, `end`.

    In a block the lengths live on the device: neither `step` nor `grow` waits for it, and the only shapes are those of
    the buffers and of the two bounds.
    """

    def __init__(
        self,
        *,
        layers: int,
        groups: int,
        n: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(
            layers=layers, groups=groups, n=n, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype, device=device
        )
        self._lengths = torch.zeros(2, groups, dtype=torch.int64, device=device)  # of trunks and of tails, in a block

    @property
    def places(self) -> tuple[int, int]:
        """Where trunk and tail are in memory: a recorded step is good for as long as they stay there."""
        return self._trunk.data_ptr(), self._tail.data_ptr()

    @property
    def lengths(self) -> Tensor:
        """Int64 [2, G], positions of trunks and of tails; true in a block only."""
        return self._lengths

    def reset(self) -> None:
        """Forget everything but where the buffers are. What was in them must not reach later results, NaN included."""
        self._trunk.zero_()
        self._tail.zero_()
        self._trunk_length, self._tail_length = [0] * self.groups, [0] * self.groups

    def begin(self) -> None:
        """Tell the device how long trunks and tails are."""
        self._lengths.copy_(torch.tensor([self._trunk_length, self._tail_length]))

    def end(self) -> None:
        """Ask the device how long tails have become; waits for it."""
        self._tail_length = self._lengths[1].tolist()

    def step(self, trunk_read: int, tail_read: int) -> Step:
        """One new position for every row; the step's `*` is [G, N].

        Only the first `trunk_read` and `tail_read` entries of the buffers are looked at: no trunk may be longer, and
        every tail must be shorter. Nothing is longer afterwards unless `grow` says so.
        """
        device = self._tail.device
        trunk, tail = self._lengths[:, :, None]  # [G, 1] each
        positions = (trunk + tail)[:, None].expand(-1, self.n, -1)  # [G, N, 1]
        slots = tail[:, :, None, None, None]  # [G, 1, 1, 1, 1]
        tail_hidden = torch.arange(tail_read, device=device) > tail
        trunk_hidden = torch.arange(trunk_read, device=device) >= trunk
        hidden = torch.cat([tail_hidden, trunk_hidden], -1)[:, None, None, None, None]  # [G, 1, 1, 1, 1, read]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            for part, value in ((self._tail[layer, 0], k), (self._tail[layer, 1], v)):
                part.scatter_(3, slots.expand_as(value), value)
            return self._attended(layer, q, hidden, tail_read, trunk_read)

        return Step(positions, attend)

    def grow(self, active: Tensor) -> None:
        """What was computed for the last step stays in the groups of `active` (bool [G]); elsewhere it is forgotten."""
        self._lengths[1].add_(active)
