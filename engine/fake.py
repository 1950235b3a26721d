"""A voice without weights: every frame follows from the row's whole history and its own noise. For tests and examples.

Knows nothing about sound, and misbehaves on demand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from codec.fake import FakeCodec
from search.config import Sampling
from search.noise import RowNoise, row_key
from search.protocols import Chunk, Codec
from search.request import SpeechRequest
from search.state import fork_rows, shared

NEVER = 1 << 30
"""A `FakeVoice.length` that no search reaches."""

_FRAMES_PER_WORD = 3
_UNSUPPORTED = ("language", "instruction", "voice", "reference", "prompt", "unconditional")


@dataclass(frozen=True)
class FakeVoice:
    """How a fake engine speaks.

    Attributes:
        books, codes: of a frame, int64 [books] with values below `codes`.
        width: if not 0, frames are float32 latents [width] instead.
        length: frames of every utterance, 0 for one that ends at once; None: three a word, then a coin for each more.
        stuck: chance, before each frame, that a row falls silent (all codes 0) and never ends.
        fails_at, error: frame at which `error` is raised.
        frame_seconds: time that a frame takes.
        alien_state: carry state that cannot be forked.
    """

    books: int = 3
    codes: int = 32
    width: int = 0
    length: int | None = None
    stuck: float = 0.0
    fails_at: int | None = None
    error: type[BaseException] = RuntimeError
    frame_seconds: float = 0.0
    alien_state: bool = False


@dataclass
class _Inner:
    ssm_state: object | None  # an option's alien: `fork_rows` knows no plain objects


@dataclass
class _State:
    digest: Tensor  # int64 [R], of everything that the row has said
    tail: Tensor  # [R, P, ...] uncommitted frames, poisoned behind `pending`
    pending: Tensor  # int64 [R]
    finished: Tensor  # bool [R]
    stuck: Tensor  # bool [R]
    inner: _Inner
    frame: int = shared()


class FakeEngine:
    """See `FakeVoice`. Counts streams opened and closed, and prompts read."""

    name = "fake"
    device = torch.device("cpu")

    def __init__(self, voice: FakeVoice | None = None, codec: Codec | None = None) -> None:
        self.options = voice or FakeVoice()
        self.codec: Codec = codec or FakeCodec()
        self.sample_rate, self.frame_rate, self.hop = self.codec.sample_rate, self.codec.frame_rate, self.codec.hop
        self.opened = self.closed = self.prefills = 0

    def budget(self, request: SpeechRequest) -> int:
        return 10 + 2 * _FRAMES_PER_WORD * len(request.text.split())

    def open(self, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> FakeEngineStream:
        for name in _UNSUPPORTED:
            if any(getattr(request, name) is not None for request in requests):
                raise ValueError(f"{name}: the fake engine does not know it; leave it out")
        for name in ("stop_bias", "min_seconds"):
            if getattr(sampling, name):
                raise ValueError(f"{name}: the fake engine has its own idea of when to stop; leave it out")
        self.opened += 1
        return FakeEngineStream(self, requests, n, sampling)


class FakeEngineStream:
    """Rows of a fake engine. Checks what the loop promises: committed frames are real, and equal in all rows."""

    def __init__(self, engine: FakeEngine, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> None:
        self._engine, self._options, self._sampling = engine, engine.options, sampling
        self._channels = self._options.width or self._options.books
        self._noise = RowNoise(sampling.seed, [request.id for request in requests], n)
        self._words = torch.tensor([len(request.text.split()) for request in requests]).repeat_interleave(n)
        self._batch, self._n, rows = len(requests), n, len(requests) * n
        read = [row_key(0, request.text, 0) >> 1 for request in requests]
        engine.prefills += len(read)
        self._opened: _State | None = _State(
            digest=torch.tensor(read).repeat_interleave(n),
            tail=self._padding(rows, 0),
            pending=torch.zeros(rows, dtype=torch.int64),
            finished=torch.zeros(rows, dtype=torch.bool),
            stuck=torch.zeros(rows, dtype=torch.bool),
            inner=_Inner(object() if self._options.alien_state else None),
            frame=0,
        )

    def advance(self, frames: int) -> Chunk:
        state = self._state
        lengths = torch.zeros_like(state.pending)
        made: list[Tensor] = []
        for draws in self._draws(frames).unbind(1):
            self._stop(*draws[:, -2:].unbind(-1))
            if bool(state.finished.all()):
                break
            made.append(self._frame(draws[:, :-2]))
            lengths += ~state.finished
            state.frame += 1
        chunk = torch.stack(made, 1) if made else self._padding(len(lengths), 0)
        place = state.pending[:, None] + torch.arange(len(made))
        state.tail = torch.cat([state.tail, self._padding(*chunk.shape[:2])], 1)
        state.tail[torch.arange(len(chunk))[:, None], place] = chunk
        state.pending = state.pending + lengths
        return Chunk(chunk, lengths, state.finished.clone())

    def fork(self, parents: Tensor) -> None:
        fork_rows(self._state, parents)

    def commit(self, frames: Tensor) -> None:
        state, counts = self._state, frames.repeat_interleave(self._n)
        assert bool((counts <= state.pending).all()), f"commit of {frames.tolist()}; rows have {state.pending.tolist()}"
        for count, rows in zip(
            frames.tolist(), state.tail.reshape(self._batch, self._n, *state.tail.shape[1:]), strict=True
        ):
            assert bool((rows[:, :count] == rows[:1, :count]).all()), f"rows disagree in the {count} oldest frames"
        state.pending = state.pending - counts
        place = torch.arange(int(state.pending.max())) + counts[:, None]
        state.tail = state.tail[torch.arange(len(counts))[:, None], place.clamp_max(state.tail.shape[1] - 1)]

    def close(self) -> None:
        self._engine.closed += self._opened is not None
        self._opened = None

    @property
    def _state(self) -> _State:
        if self._opened is None:
            raise RuntimeError("this stream is closed: open another one")
        return self._opened

    def _padding(self, rows: int, frames: int) -> Tensor:
        """Frames that nobody may read: they match no code, and no latent equals them."""
        poison = torch.nan if self._options.width else -1
        return torch.full((rows, frames, self._channels), poison)

    def _draws(self, frames: int) -> Tensor:
        """Noise of the next frames [R, frames, channels + 2]; the last two channels are for `_stop`."""
        uniform = self._noise.uniform(self._state.frame, frames, self._channels + 2)
        if self._options.width:
            uniform[..., :-2] = self._noise.normal(self._state.frame, frames, self._options.width)
        return uniform

    def _stop(self, stuck: Tensor, done: Tensor) -> None:
        """Decide, before a frame, which rows are done and which get stuck."""
        state, options = self._state, self._options
        state.stuck = state.stuck | (stuck < options.stuck)
        if options.length is None:
            ends = (state.frame >= self._words * _FRAMES_PER_WORD) & (done < 0.5)
        else:
            ends = torch.full_like(state.finished, state.frame >= options.length)
        state.finished = state.finished | (ends & ~state.stuck)

    def _frame(self, draws: Tensor) -> Tensor:
        """One frame [R, ...], from the digest of all before it and one draw a channel."""
        state, options = self._state, self._options
        if options.fails_at is not None and state.frame >= options.fails_at:
            raise options.error(f"fake engine: told to fail at frame {options.fails_at}")
        time.sleep(options.frame_seconds)
        pull = (state.digest >> 40 & 0xFFFF)[:, None]
        if options.width:
            frame = draws + pull.float() * 2.0**-16
        else:
            frame = (pull + (draws * float(self._sampling.temperature > 0) * options.codes).long()) % options.codes
        frame = frame.masked_fill(state.stuck[:, None], 0)
        for symbol in (frame.view(torch.int32) if options.width else frame).long().unbind(-1):
            state.digest = torch.where(state.finished, state.digest, mix(state.digest, symbol))
        return torch.where(state.finished[:, None], self._padding(len(frame), 1)[:, 0], frame)


def mix(digest: Tensor, symbol: Tensor) -> Tensor:
    """Fold a symbol into a 64-bit digest (one step of a multiplicative hash; int64 arithmetic wraps)."""
    mixed = (digest ^ (symbol + 0x9E3779B9)) * 6364136223846793005 + 1442695040888963407
    return mixed ^ (mixed >> 29 & 0x7FFFFFFFF)
