"""The frame step on fixed buffers: depth decoder, sampling and global step of a frame as one call without the host.

It computes the frames of `MossStream` on the same noise. Shapes depend on a plan and on two bounds, never on data, and
nothing in a step waits for the device, so that a step can be recorded once and replayed. It does not know how it is
recorded (`engine/moss/graphs.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.moss.decoding import new_rows, says_stop, spoken_codes
from engine.moss.depth import DepthPass
from engine.moss.frames import FrameNetwork
from engine.moss.graphs import Recorder, Replay, bucket
from engine.moss.stream import MossState, cache_shape
from search.config import Sampling
from search.sampling import draw_code
from search.static_cache import StaticCache

BLOCK = 32
"""Frames that are made before the host looks which rows have finished."""
LEAST_TRUNK, LEAST_TAIL = 256, 32
TAIL_ROOM = 128
"""Positions of tails that there is room for from the start: several beams may disagree for more than a chunk."""


@dataclass(frozen=True)
class Plan:
    """All that a step is made for and cannot change afterwards; of `sampling` what no input of a step says."""

    batch: int
    n: int
    sides: int
    guidance: float
    sampling: Sampling

    @classmethod
    def of(cls, batch: int, n: int, sides: int, guidance: float, sampling: Sampling) -> Plan:
        """With everything at its default that is an input: the seed, the stop bias and the shortest length."""
        default = Sampling()
        baked = replace(
            sampling,
            guidance=None,
            seed=default.seed,
            stop_bias=default.stop_bias,
            min_seconds=default.min_seconds,
        )
        return cls(batch, n, sides, guidance, baked)


class FramePlace:
    """The buffers of a plan, the step on them, and its recordings by the bounds of what attention reads.

    R = batch * n rows, S sides, q books that are spoken.

    Attributes:
        cache: of the global decoder, S * batch groups.
        hidden: `[S * R, H]`, finished bool `[R]`, seen bool `[R, V_k]` each: as in `MossState`.
        uniform, stop_bias: inputs of a block, `[R, BLOCK, q + 1]` and `[BLOCK]`.
        codes, lengths: outputs of a block, int64 `[R, BLOCK, q]` and `[R]` frames.
    """

    def __init__(self, network: FrameNetwork, plan: Plan, recorder: Recorder) -> None:
        self._network, self.plan = network, plan
        self._record = recorder.place()
        self._recorded: dict[tuple[int, int], Replay] = {}
        weight, config = network.text_embedding.weight, network.config
        rows, device = plan.batch * plan.n, weight.device
        sizes = config.codebook_sizes[: network.spoken_books] if plan.sampling.repetition_penalty != 1.0 else ()
        # Buffers outlive the search that asked for them, which may run in inference mode where the next one does not.
        with torch.inference_mode(False):
            self.cache = StaticCache(groups=plan.sides * plan.batch, n=plan.n, **cache_shape(network))
            self.hidden = torch.zeros(plan.sides * rows, config.backbone.hidden, dtype=weight.dtype, device=device)
            self.finished = torch.zeros(rows, dtype=torch.bool, device=device)
            self.seen = [torch.zeros(rows, size, dtype=torch.bool, device=device) for size in sizes]
            self.uniform = torch.zeros(rows, BLOCK, config.books + 1, device=device)
            self.stop_bias = torch.zeros(BLOCK, device=device)
            self.codes = torch.zeros(rows, BLOCK, network.spoken_books, dtype=torch.int64, device=device)
            self.lengths = torch.zeros(rows, dtype=torch.int64, device=device)
            self._frame = torch.zeros(1, dtype=torch.int64, device=device)  # of the block, which comes next
        self._placed = self.cache.places

    def settle(self, state: MossState) -> None:
        """Bring the rows of a state here, where a fork has put them elsewhere; the state then holds these buffers."""
        if state.hidden is not self.hidden:
            state.hidden = self.hidden.copy_(state.hidden)
        if state.finished is not self.finished:
            state.finished = self.finished.copy_(state.finished)
        for book, mine in enumerate(self.seen):
            if state.seen[book] is not mine:
                state.seen[book] = mine.copy_(state.seen[book])

    def reserve(self, trunk: int, tail: int) -> None:
        """Make room for so many positions; recordings are void if buffers have to move."""
        with torch.inference_mode(False):
            self.cache.reserve(bucket(trunk, LEAST_TRUNK), bucket(tail, TAIL_ROOM))
        if self.cache.places != self._placed:
            self._placed = self.cache.places
            self._recorded.clear()

    def run(self, frames: int, uniform: Tensor, stop_bias: Tensor) -> None:
        """Make `frames` frames, at most BLOCK, in all rows; finished ones speak pads. Inputs as of `RandomDraws`."""
        trunk, tail = max(self.cache.committed), max(self.cache.pending) + frames
        self.reserve(trunk + tail, tail)  # the tail is going to move there
        replay = self._recording(bucket(trunk, LEAST_TRUNK), bucket(tail, LEAST_TAIL))
        self.uniform[:, :frames].copy_(uniform)
        self.stop_bias[:frames].copy_(stop_bias)
        self._frame.zero_()
        self.lengths.zero_()
        self.cache.begin()
        for _ in range(frames):
            replay()
        self.cache.end()

    def record_ahead(self, trunk: int) -> None:
        """Record the steps of trunks from now up to a length, tails being no longer than a usual chunk."""
        self.reserve(trunk, LEAST_TAIL)
        bound = bucket(max(self.cache.committed), LEAST_TRUNK)
        while bound <= bucket(trunk, LEAST_TRUNK):
            self._recording(bound, LEAST_TAIL)
            bound *= 2

    def _recording(self, trunk_read: int, tail_read: int) -> Replay:
        bounds = trunk_read, tail_read
        if bounds not in self._recorded:
            self._recorded[bounds] = self._record(lambda: self._step(*bounds), self._rewind())
        return self._recorded[bounds]

    def _rewind(self) -> Replay:
        """Undo whatever steps have done since now. What they wrote behind the ends of tails is never read."""
        self._frame.zero_()
        self.cache.begin()
        changed = [self.hidden, self.finished, *self.seen, self._frame, self.lengths, self.cache.lengths]
        saved = [tensor.clone() for tensor in changed]

        def rewind() -> None:
            for tensor, old in zip(changed, saved, strict=True):
                tensor.copy_(old)

        return rewind

    def _step(self, trunk_read: int, tail_read: int) -> None:
        network, plan, sides = self._network, self.plan, self.plan.sides
        rows = len(self.finished)
        uniform = self.uniform.index_select(1, self._frame).squeeze(1)  # [R, q + 1]
        depth = DepthPass(network, sides * rows)
        hidden = depth.begin(self.hidden)
        stop_logits = network.stop_logits(hidden[:rows, None]).float()
        bias = self.stop_bias.index_select(0, self._frame)
        self.finished |= says_stop(stop_logits, bias, uniform[:, -1], plan.sampling)
        codes = spoken_codes(
            network,
            depth,
            hidden,
            self.finished,
            self.seen,
            lambda book, logits: draw_code(logits, uniform[:, book], plan.sampling),
            guidance=plan.guidance,
            penalty=plan.sampling.repetition_penalty,
        )
        self.codes.index_copy_(1, self._frame, codes[:, None])
        self.lengths += ~self.finished
        inputs = network.embed(new_rows(network, codes, self.finished, sides))
        step = self.cache.step(trunk_read, tail_read)
        inputs = inputs.view(self.cache.groups, plan.n, 1, -1)
        self.hidden.copy_(network.transformer(inputs, step.positions, step.attend).flatten(0, 2))
        self.cache.grow(~self.finished.view(plan.batch, plan.n).all(1).repeat(sides))
        self._frame += 1
