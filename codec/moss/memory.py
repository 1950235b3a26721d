"""What a stack of transformers remembers of a stream: one cache a transformer, each at its own rate.

Frames are the unit outside; it alone knows how many positions a frame has where. It does not know the networks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from codec.moss.config import ModuleConfig, TransformerConfig
from search.state import BranchCache, Step, shared


@dataclass
class StackMemory:
    """`caches[i]` belongs to transformer i, and grows by `steps[i]` positions a frame."""

    caches: list[BranchCache]
    steps: tuple[int, ...] = shared()

    @classmethod
    def empty(
        cls, modules: Iterable[ModuleConfig], batch: int, n: int, dtype: torch.dtype, device: torch.device
    ) -> StackMemory:
        """Before the first frame of `batch` groups of `n` rows."""
        transformers = [module for module in modules if isinstance(module, TransformerConfig)]
        caches = [
            BranchCache(
                layers=config.layers,
                groups=batch,
                n=n,
                kv_heads=config.heads,
                head_dim=config.head_dim,
                dtype=dtype,
                device=device,
                window=config.context,
            )
            for config in transformers
        ]
        return cls(caches, tuple(config.steps for config in transformers))

    def extend(self, frames: int, active: Tensor | None = None) -> list[Step]:
        """`frames` more frames, one step a transformer; groups that are False in `active` (bool [B]) do not grow."""
        return [cache.extend(frames * steps, active) for cache, steps in zip(self.caches, self.steps, strict=True)]

    def commit(self, frames: Tensor) -> None:
        """The oldest `frames[b]` uncommitted frames are equal in all rows of group b; int64 [B]."""
        for cache, steps in zip(self.caches, self.steps, strict=True):
            cache.commit(frames * steps)
