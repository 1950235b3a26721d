"""Counter-based random numbers: the same draw for the same address, whatever else happens.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in integer tensor arithmetic, so
that CPU and GPU give the same bits. Knows nothing about distributions over codes: it gives uniforms and normals.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_ROUNDS = 10


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Ten rounds of Philox4x32: four 32-bit words from a 128-bit counter and a 64-bit key.

    Every word is an int64 tensor with values in [0, 2^32); shapes broadcast against each other.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The int64 product wraps, which keeps its low 64 bits exact: the two halves are what Philox wants.
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> 32 & _MASK) ^ c1 ^ k0,
            second & _MASK,
            (first >> 32 & _MASK) ^ c3 ^ k1,
            first & _MASK,
        )
        k0, k1 = k0 + _WEYL[0] & _MASK, k1 + _WEYL[1] & _MASK
    return c0, c1, c2, c3


class RowNoise:
    """The random streams of all rows of a search, addressed by (frame since the start, channel).

    Row `i` of a request is keyed by `(seed, request id or "", i)` and by nothing else, so neither the number of
    candidates nor batch mates, chunk length, device or order of calls can change a draw.
    """

    def __init__(
        self, seed: int, request_ids: Sequence[str | None], n: int, device: torch.device | str = "cpu"
    ) -> None:
        keys = [row_key(seed, request_id, i) for request_id in request_ids for i in range(n)]
        words = torch.tensor([[key & _MASK, key >> 32] for key in keys], dtype=torch.int64, device=device)
        self._key = (words[:, 0, None, None], words[:, 1, None, None])  # [R, 1, 1] each
        self._device = words.device

    def uniform(self, start: int | Tensor, frames: int, channels: int) -> Tensor:
        """Uniforms in [0, 1) for `frames` frames from `start` (an int, or int64 [R]): float32 [R, frames, channels]."""
        word, _ = self._words(start, frames, channels)
        return (word >> 8).to(torch.float32) * 2.0**-24

    def normal(self, start: int | Tensor, frames: int, channels: int) -> Tensor:
        """Standard normals, same addresses, by the Box-Muller transform: float32 [R, frames, channels]."""
        radius, angle = self._words(start, frames, channels)
        # The half keeps the logarithm finite; float64 keeps CPU and GPU within one rounding of each other.
        first = ((radius >> 8).to(torch.float64) + 0.5) * 2.0**-24
        second = (angle >> 8).to(torch.float64) * 2.0**-24
        return (torch.sqrt(-2.0 * torch.log(first)) * torch.cos(2.0 * math.pi * second)).to(torch.float32)

    def _words(self, start: int | Tensor, frames: int, channels: int) -> tuple[Tensor, Tensor]:
        first = torch.as_tensor(start, dtype=torch.int64, device=self._device).reshape(-1, 1, 1)
        frame = first + torch.arange(frames, device=self._device)[None, :, None]
        channel = torch.arange(channels, device=self._device)[None, None, :]
        zero = torch.zeros((), dtype=torch.int64, device=self._device)
        words = philox((frame & _MASK, channel, frame >> 32, zero), self._key)
        return words[0], words[1]


def row_key(seed: int, request_id: str | None, row: int) -> int:
    """64-bit Philox key of one row: a hash of seed, request id and row number, so that near seeds are unrelated."""
    label = f"{seed}\0{request_id or ''}\0{row}".encode()
    return int.from_bytes(hashlib.blake2b(label, digest_size=8).digest(), "little")
