"""A decoder without weights, with real memory: a filter longer than a chunk, and attention to frames long gone.

All its arithmetic is exact in float32 (small integers, attention that selects a single frame), so streamed audio can be
compared with the offline decode bit by bit. Knows nothing about how frames were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from search.protocols import Chunk
from search.state import BranchCache, fork_rows

_TAPS = ((torch.arange(123) * 7) % 5 - 2).float()  # of the filter, more samples than a chunk of 10 frames has
_POSITION_BITS = 12
_FULL_SCALE = 2.0**15


@dataclass
class _Filter:
    samples: Tensor  # float32 [R, taps - 1], the newest samples of the excitation


@dataclass
class _State:
    filter: _Filter
    memory: BranchCache  # one value a frame, read by the frame at twice the position


class FakeCodec:
    """Decodes codes or latents to PCM of `hop` samples a frame. Counts streams opened and closed.

    Args:
        output_deficit: samples that every chunk is short of, as with decoders that trim their edges.
    """

    frame_rate = Fraction(25, 2)

    def __init__(self, hop: int = 8, output_deficit: int = 0) -> None:
        self.hop, self.output_deficit = hop, output_deficit
        self.sample_rate = int(self.frame_rate * hop)
        self.opened = self.closed = 0

    def open(self, batch: int, n: int) -> FakeCodecStream:
        self.opened += 1
        return FakeCodecStream(self, batch, n)

    def decode(self, frames: Tensor) -> Tensor:
        """Offline and on its own: no cache, no state."""
        symbol = symbols(frames)
        excited = torch.nn.functional.pad(excitation(symbol, self.hop), (len(_TAPS) - 1, 0))
        past = symbol[torch.arange(len(symbol)) // 2].float()
        return mixed(filtered(excited[None])[0], past.repeat_interleave(self.hop))


class FakeCodecStream:
    """Decoder state of all rows."""

    def __init__(self, codec: FakeCodec, batch: int, n: int) -> None:
        self._codec, self._batch, self._n = codec, batch, n
        self._open = True
        self._state = _State(
            _Filter(torch.zeros(batch * n, len(_TAPS) - 1)),
            BranchCache(layers=1, groups=batch, n=n, kv_heads=1, head_dim=_POSITION_BITS, scale=64.0),
        )

    def decode(self, chunk: Chunk) -> Tensor:
        self._check_open()
        rows, new = chunk.frames.shape[:2]
        if not new:
            return torch.zeros(rows, 0)
        hop, state = self._codec.hop, self._state
        real = torch.arange(new) < chunk.lengths[:, None]  # [R, T]
        symbol = symbols(chunk.frames).masked_fill(~real, 0)
        excited = torch.cat([state.filter.samples, excitation(symbol, hop)], 1)
        state.filter.samples = excited[:, -(len(_TAPS) - 1) :].clone()
        past = self._recall(symbol, chunk.lengths)
        pcm = mixed(filtered(excited), past.repeat_interleave(hop, 1)) * real.repeat_interleave(hop, 1)
        return pcm[:, : new * hop - self._codec.output_deficit]

    def fork(self, parents: Tensor) -> None:
        self._check_open()
        fork_rows(self._state, parents)

    def commit(self, frames: Tensor) -> None:
        self._check_open()
        self._state.memory.commit(frames)

    def close(self) -> None:
        self._codec.closed += self._open
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("this stream is closed: open another one")

    def _recall(self, symbol: Tensor, lengths: Tensor) -> Tensor:
        """Symbols [R, T] of the frames at half the position of each new one."""
        grows = (lengths.view(self._batch, self._n) > 0).any(1)
        step = self._state.memory.extend(symbol.shape[1], grows)
        value = torch.zeros(*step.positions.shape, _POSITION_BITS)
        value[..., 0] = symbol.view(self._batch, self._n, -1)
        query, key = bits(step.positions // 2), bits(step.positions)
        recalled = step.attend(0, query[:, :, None], key[:, :, None], value[:, :, None])  # [B, N, 1, T, bits]
        return recalled[:, :, 0, :, 0].flatten(0, 1)


def symbols(frames: Tensor) -> Tensor:
    """One small integer a frame, from all of its codes or latents: [..., T, q] to int64 [..., T]."""
    whole = frames if not frames.is_floating_point() else (frames.nan_to_num() * 16).round().long()
    return (whole * torch.arange(1, whole.shape[-1] + 1)).sum(-1) % 251


def excitation(symbol: Tensor, hop: int) -> Tensor:
    """Integers within +-8 in float32: [..., T] to [..., T * hop]."""
    return ((symbol[..., None] * torch.arange(1, hop + 1)) % 17 - 8).flatten(-2).float()


def filtered(excited: Tensor) -> Tensor:
    """Causal convolution, [R, taps - 1 + S] to [R, S]: the newest sample meets the first tap."""
    return torch.nn.functional.conv1d(excited[:, None], _TAPS.flip(0)[None, None])[:, 0]


def bits(positions: Tensor) -> Tensor:
    """Positions as signs: two of them agree in all bits, or their product falls by 2 for every bit that differs."""
    return ((positions[..., None] >> torch.arange(_POSITION_BITS)) & 1).float() * 2 - 1


def mixed(filtered_excitation: Tensor, past: Tensor) -> Tensor:
    """PCM within +-1 from its two parts."""
    return (filtered_excitation + 16 * past) / _FULL_SCALE
