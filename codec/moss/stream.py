"""Decoder streams of MOSS-Audio-Tokenizer that can be forked. Knows shapes and memory, no files and no recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from codec.chunks import checked_codes
from codec.moss.memory import StackMemory
from search.protocols import Chunk
from search.state import fork_rows

if TYPE_CHECKING:
    from codec.moss.codec import MossCodec

PIECE = 20
"""Frames that go through the network at once: the scores of attention grow with their square."""


class MossCodecStream:
    """Decoder state of `batch * n` rows. Made by `MossCodec.open`."""

    def __init__(self, codec: MossCodec, batch: int, n: int) -> None:
        self._codec, self._shape = codec, (batch, n)
        self._state: StackMemory | None = StackMemory.empty(codec.config.decoder, batch, n, codec.dtype, codec.device)

    def decode(self, chunk: Chunk) -> Tensor:
        """Float32 [R, T * hop], the mean of the channels of the new frames; zero after a row's length.

        Raises:
            ValueError: a shape, a length or a code that this codec does not have; nothing has been decoded then.
        """
        return self.decode_channels(chunk).mean(1)

    @torch.inference_mode()
    def decode_channels(self, chunk: Chunk) -> Tensor:
        """As `decode`, but all channels: float32 [R, channels, T * hop]."""
        state, codec = self._open_state(), self._codec
        codes = checked_codes(chunk, self._shape[0] * self._shape[1], codec.book_sizes, codec.device)
        rows, length, _ = codes.shape
        lengths = chunk.lengths.cpu()
        pieces = [torch.zeros(rows, codec.channels, 0, device=codec.device)]
        at_once = PIECE
        if codec.device.type == "cpu":  # scores that stay in its caches: 1.6 times as fast with 8 rows of Nano
            at_once = max(PIECE // rows, 2)
        for start in range(0, length, at_once):
            piece = codes[:, start : start + at_once]
            steps = state.extend(piece.shape[1], (lengths.view(self._shape) > start).any(1))
            pieces.append(codec.sound(piece.view(*self._shape, *piece.shape[1:]), steps).flatten(0, 1))
        place = torch.arange(length * codec.hop, device=codec.device)
        real = place < lengths.to(codec.device)[:, None, None] * codec.hop
        return torch.cat(pieces, -1).where(real, 0.0)

    @torch.inference_mode()
    def fork(self, parents: Tensor) -> None:
        """Row `(b, i)` goes on as a copy of old row `(b, parents[b, i])`; int64 [B, N]. Identity copies nothing."""
        if tuple(parents.shape) != self._shape:
            raise ValueError(f"codec fork: parents has shape {tuple(parents.shape)}; {self._shape} is needed")
        fork_rows(self._open_state(), parents)

    @torch.inference_mode()
    def commit(self, frames: Tensor) -> None:
        """The oldest `frames[b]` uncommitted frames are now equal in all rows of request b; int64 [B]."""
        self._open_state().commit(frames)

    def close(self) -> None:
        """Release the state. May be called more than once."""
        self._state = None

    def _open_state(self) -> StackMemory:
        if self._state is None:
            raise ValueError("codec stream: it was closed; open a new one")
        return self._state
