"""The shapes of everything that plugs into a search. Declares what streams promise; knows nothing of how they keep it.

Rows are axis 0 of every per-row tensor: with `B` requests and `N` candidates each, row `b * N + i` is candidate `i` of
request `b`, and `R = B * N`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from search.config import Sampling
from search.request import SpeechRequest


@runtime_checkable
class Stream(Protocol):
    """Something per row that can be forked, shared and given back."""

    def fork(self, parents: Tensor) -> None:
        """Row `(b, i)` goes on as a copy of old row `(b, parents[b, i])`; int64 [B, N], values 0..N-1.

        An identity fork copies nothing. State that the stream cannot fork raises; it is never skipped.
        """

    def commit(self, frames: Tensor) -> None:
        """The oldest `frames[b]` uncommitted frames are now equal in all rows of request `b`; int64 [B]."""

    def close(self) -> None:
        """Release what the stream holds. May be called more than once."""


@dataclass(frozen=True)
class Chunk:
    """Frames that all rows generated since the last chunk.

    A request none of whose rows has new frames leaves the state of codecs and scorers as it is: in a batch it may have
    ended long ago, and what does not grow needs no commit.

    Attributes:
        frames: int64 [R, T, q] codes, or float32 [R, T, d] latents. What lies beyond a row's length is padding.
        lengths: int64 [R], real frames of each row in this chunk: at most T, fewer where the row ended, then 0.
        finished: bool [R], the row has said that it is done.
    """

    frames: Tensor
    lengths: Tensor
    finished: Tensor


class EngineStream(Stream, Protocol):
    """N candidates of each request, being generated."""

    def advance(self, frames: int) -> Chunk:
        """Generate up to `frames` frames in every row; fewer only where all rows have finished."""


class Codec(Protocol):
    """Turns frames into PCM."""

    sample_rate: int
    frame_rate: Fraction
    hop: int  # samples per frame, exactly sample_rate / frame_rate

    def open(self, batch: int, n: int) -> CodecStream:
        """A fresh decoder state for `batch * n` rows."""

    def decode(self, frames: Tensor) -> Tensor:
        """Offline: [T, q] or [T, d] frames to float32 [T * hop] samples; streaming agrees within rounding."""


class CodecStream(Stream, Protocol):
    """Decoder state of every row."""

    def decode(self, chunk: Chunk) -> Tensor:
        """Float32 [R, T * hop] samples of the new frames, zero after a row's length."""


class Engine(Protocol):
    """Turns text into frames. Names its codec."""

    name: str
    sample_rate: int
    frame_rate: Fraction
    hop: int
    device: torch.device
    codec: Codec

    def open(self, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> EngineStream:
        """Read the prompts, once each. Raises `ValueError` for a request that it cannot speak."""

    def budget(self, request: SpeechRequest) -> int:
        """Frames that a sane reading of the text can take; a row that needs more is not coming back."""


@dataclass(frozen=True)
class Scores:
    """What a scorer thinks of every row's audio so far.

    Attributes:
        reward: float32 [R], higher is better; NaN where the scorer cannot judge.
        heads: every raw term, float32 [R] each. "prefix_wer", if there, breaks ties between equal rewards.
        notes: [R], what a person wants to read: transcript, progress, why a row could not be judged.
    """

    reward: Tensor
    heads: dict[str, Tensor]
    notes: list[dict[str, Any]]


class ScorerStream(Stream, Protocol):
    """What a scorer remembers of every row."""

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        """Listen to the new audio and judge all of it so far.

        Args:
            pcm: float32 [R, S], new samples only; zero beyond a row's length.
            lengths: int64 [R], in samples.
            finished: bool [R], no more will come from this row: the whole text should have been said.
        """


class Scorer(Protocol):
    """Turns PCM into one number per row."""

    name: str
    device: torch.device

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> ScorerStream:
        """Prepare what depends on the text. `hop` is the engine's samples per frame, the unit of commits."""
