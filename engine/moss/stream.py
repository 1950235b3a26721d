"""Generation: many candidate rows of several requests, one frame at a time, on one forkable state.

The order of the rules is the reference's: stop decision, then the codebooks in order, then the global step on the new
row. It does not know which rows are good, nor how a uniform becomes a code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from engine.moss.decoding import new_rows, says_stop, spoken_codes
from engine.moss.depth import DepthPass
from engine.moss.frames import FrameNetwork
from engine.moss.prompt import Prompt
from search.config import Sampling
from search.noise import RowNoise
from search.protocols import Chunk
from search.sampling import draw_code
from search.state import BranchCache, fork_rows, shared

USUAL_FRAME_RATE = Fraction(25, 2)
"""Of the codecs that published checkpoints speak through."""


class Draws(Protocol):
    """Where the decisions of a frame come from; logits are float32, rows first."""

    def prepare(self, start: int, frames: int) -> None:
        """Frames `start .. start + frames - 1` come next."""

    def stop(self, frame: int, logits: Tensor) -> Tensor:
        """Logits `[R, 2]` (continue, stop) -> bool `[R]`, True where the row says that it is done."""

    def code(self, frame: int, book: int, logits: Tensor) -> Tensor:
        """Logits `[R, V_k]` of one codebook, penalty applied -> int64 `[R]`."""


class RandomDraws:
    """Draws from the counter-based generator: channel `book` for the codes of a frame, channel `q` for its stop.

    Before the stop is drawn, `stop_bias` is taken from its logit, and everything where `min_seconds` have not passed.
    """

    def __init__(
        self, noise: RowNoise, sampling: Sampling, books: int, frame_rate: Fraction = USUAL_FRAME_RATE
    ) -> None:
        self._noise, self._sampling, self._books = noise, sampling, books
        self._least = sampling.least_frames(frame_rate)
        self._start = 0
        self._uniform = self._stop_bias = torch.empty(0)

    def prepare(self, start: int, frames: int) -> None:
        self._start = start
        self._uniform, self._stop_bias = self.inputs(start, frames)

    def inputs(self, start: int, frames: int) -> tuple[Tensor, Tensor]:
        """All that is drawn with: uniforms `[R, frames, q + 1]` and what the stop logits lose, `[frames]`."""
        uniform = self._noise.uniform(start, frames, self._books + 1)
        early = torch.arange(start, start + frames, device=uniform.device) < self._least
        return uniform, torch.where(early, torch.inf, self._sampling.stop_bias)

    def stop(self, frame: int, logits: Tensor) -> Tensor:
        place = frame - self._start
        return says_stop(logits, self._stop_bias[place], self._uniform[:, place, self._books], self._sampling)

    def code(self, frame: int, book: int, logits: Tensor) -> Tensor:
        return draw_code(logits, self._uniform[:, frame - self._start, book], self._sampling)


@dataclass
class MossState:
    """Everything a row remembers. R = B * N rows; S guidance sides (1 or 2), side-major: side 0 is conditional."""

    cache: BranchCache  # S * B groups of N rows
    hidden: Tensor  # [S * R, H] global hidden of the newest row, from which the next frame is decoded
    finished: Tensor  # [R] bool
    seen: list[Tensor]  # one bool [R, V_k] per codebook: codes that the row has emitted; empty without a penalty
    frame: int = shared()  # frames generated so far


def read_prompts(network: FrameNetwork, prompts: Sequence[Tensor], cache: BranchCache) -> Tensor:
    """Read prompts (one int64 `[L, 1 + q]` a group of the cache) once each, for all rows.

    Returns the hidden states `[G, L, H]` of all prompt rows; those beyond a prompt's length are padding.
    """
    rows = pad_sequence(list(prompts), batch_first=True, padding_value=0)  # [G, L, 1 + q]
    step = cache.prefill(torch.tensor([len(prompt) for prompt in prompts]))
    inputs = network.embed(rows.to(network.text_embedding.weight.device))
    hidden: Tensor = network.transformer(inputs, step.positions, step.attend)
    return hidden


def cache_shape(network: FrameNetwork) -> dict[str, Any]:
    """What the network asks of the cache of its global decoder, as the arguments of a `BranchCache`."""
    backbone, weight = network.config.backbone, network.text_embedding.weight
    return {
        "layers": backbone.layers,
        "kv_heads": backbone.kv_heads,
        "head_dim": backbone.head_dim,
        "dtype": weight.dtype,
        "device": weight.device,
    }


def new_cache(network: FrameNetwork, groups: int, n: int) -> BranchCache:
    """An empty cache for the network's global decoder."""
    return BranchCache(groups=groups, n=n, **cache_shape(network))


class MossStream:
    """The engine stream of the layout; all of its state is one `MossState`."""

    def __init__(
        self, network: FrameNetwork, prompts: Sequence[Prompt], n: int, draws: Draws, *, guidance: float, penalty: float
    ) -> None:
        """Read every prompt once; the unconditional ones too, which all must have, unless `guidance` is 1."""
        self._network, self._draws = network, draws
        self._guidance, self._penalty = guidance, penalty
        self._batch, self._n = len(prompts), n
        sides = [prompt.conditional for prompt in prompts]
        if guidance != 1.0:
            sides += [prompt.unconditional for prompt in prompts if prompt.unconditional is not None]
            assert len(sides) == 2 * len(prompts), "guidance needs an unconditional prompt in every request"
        self._sides = len(sides) // self._batch
        self._state: MossState | None = self._open(sides)

    def _cache(self) -> BranchCache:
        """The empty cache of all sides."""
        return new_cache(self._network, self._sides * self._batch, self._n)

    def _open(self, prompts: list[Tensor]) -> MossState:
        cache = self._cache()
        hidden = read_prompts(self._network, prompts, cache)
        last = torch.stack([hidden[group, len(prompt) - 1] for group, prompt in enumerate(prompts)])
        rows, device = self._batch * self._n, hidden.device
        network, penalised = self._network, self._penalty != 1.0
        sizes = network.config.codebook_sizes[: network.spoken_books] if penalised else ()
        return MossState(
            cache=cache,
            hidden=last.repeat_interleave(self._n, 0),
            finished=torch.zeros(rows, dtype=torch.bool, device=device),
            seen=[torch.zeros(rows, size, dtype=torch.bool, device=device) for size in sizes],
            frame=0,
        )

    @property
    def state(self) -> MossState:
        """The live state; raises `RuntimeError` once the stream is closed."""
        if self._state is None:
            raise RuntimeError("this stream is closed: open another one")
        return self._state

    def advance(self, frames: int) -> Chunk:
        """Generate up to `frames` frames, int64 `[R, T, q]`; T is smaller only where all rows have finished.

        q counts the books that the network speaks.
        """
        state, network = self.state, self._network
        self._draws.prepare(state.frame, frames)
        lengths = torch.zeros(len(state.finished), dtype=torch.int64, device=state.hidden.device)
        made: list[Tensor] = []
        for _ in range(frames):
            codes = self._frame(state)
            if codes is None:
                break
            made.append(codes)
            lengths += ~state.finished
            self._read(state, codes)
            state.frame += 1
        empty = lengths.new_full((len(lengths), 0, network.spoken_books), network.config.audio_pad)
        return Chunk(torch.stack(made, 1) if made else empty, lengths, state.finished.clone())

    def fork(self, parents: Tensor) -> None:
        fork_rows(self.state, parents)

    def commit(self, frames: Tensor) -> None:
        self.state.cache.commit(frames.repeat(self._sides))

    def close(self) -> None:
        self._state = None

    def _frame(self, state: MossState) -> Tensor | None:
        """Decide stop, then draw the codes `[R, q]` of one frame, pad in finished rows; None where no row goes on."""
        network, rows = self._network, len(state.finished)
        depth = DepthPass(network, len(state.hidden))
        hidden = depth.begin(state.hidden)
        state.finished = state.finished | self._draws.stop(
            state.frame, network.stop_logits(hidden[:rows, None]).float()
        )
        if bool(state.finished.all()):
            return None
        return spoken_codes(
            network,
            depth,
            hidden,
            state.finished,
            state.seen,
            lambda book, logits: self._draws.code(state.frame, book, logits),
            guidance=self._guidance,
            penalty=self._penalty,
        )

    def _read(self, state: MossState, codes: Tensor) -> None:
        """The global step on the new rows, both sides alike; requests whose rows have all finished stay as they are."""
        rows = new_rows(self._network, codes, state.finished, self._sides)
        done = state.finished.view(self._batch, self._n).all(1)
        active = ~done.repeat(self._sides) if bool(done.any()) else None
        step = state.cache.extend(1, active)
        inputs = self._network.embed(rows).view(self._sides * self._batch, self._n, 1, -1)
        state.hidden = self._network.transformer(inputs, step.positions, step.attend).flatten(0, 2)
