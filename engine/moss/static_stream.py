"""Streams on fixed buffers: what `MossStream` says, by the frame step that can be recorded.

It does not know what a step does on its place, nor how it is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.moss.frames import FrameNetwork
from engine.moss.graphs import Recorder
from engine.moss.prompt import Prompt
from engine.moss.static import BLOCK, FramePlace, Plan
from engine.moss.stream import MossStream, RandomDraws
from search.config import Sampling
from search.protocols import Chunk
from search.static_cache import StaticCache

_IDLE_PLACES = 4


class FramePlaces:
    """Places that no stream uses now, the newest few of them: recordings are dear, and so is memory."""

    def __init__(self, network: FrameNetwork, recorder: Recorder) -> None:
        self._network, self.recorder = network, recorder
        self._idle: list[FramePlace] = []
        self._lock = threading.Lock()

    def borrow(self, plan: Plan) -> FramePlace:
        """A place for the plan, empty; nobody else has it until it is given back."""
        with self._lock:
            found = next((place for place in reversed(self._idle) if place.plan == plan), None)
            if found is not None:
                self._idle.remove(found)
        if found is None:
            return FramePlace(self._network, plan, self.recorder)
        found.cache.reset()
        return found

    def give_back(self, place: FramePlace) -> None:
        """Keep it for the next stream of its plan."""
        with self._lock:
            self._idle = [*self._idle, place][-_IDLE_PLACES:]


class StaticStream(MossStream):
    """`MossStream` on a borrowed place: the same state, whose tensors are the place's."""

    def __init__(
        self,
        network: FrameNetwork,
        prompts: Sequence[Prompt],
        n: int,
        draws: RandomDraws,
        *,
        guidance: float,
        sampling: Sampling,
        places: FramePlaces,
        budget: int,
    ) -> None:
        """As for `MossStream`; recordings are made ahead for `budget` frames, more will do if need be."""
        self._places, self._inputs = places, draws.inputs
        plan = Plan.of(len(prompts), n, 1 if guidance == 1.0 else 2, guidance, sampling)
        self._place: FramePlace | None = places.borrow(plan)
        sides = [rows for prompt in prompts for rows in (prompt.conditional, prompt.unconditional) if rows is not None]
        longest = max(len(rows) for rows in sides)
        self._place.reserve(longest + budget, BLOCK)
        super().__init__(network, prompts, n, draws, guidance=guidance, penalty=sampling.repetition_penalty)
        self._place.settle(self.state)
        self._place.record_ahead(longest + budget)

    def advance(self, frames: int) -> Chunk:
        state, place = self.state, self._place
        assert place is not None, "an open stream has a place"
        lengths = torch.zeros_like(place.lengths)
        made = [place.codes[:, :0]]
        while frames and not bool(state.finished.all()):
            count = min(frames, BLOCK)
            place.run(count, *self._inputs(state.frame, count))
            made.append(place.codes[:, : int(place.lengths.max())].clone())
            lengths += place.lengths
            frames -= count
            state.frame += made[-1].shape[1]
        return Chunk(torch.cat(made, 1), lengths, state.finished.clone())

    def fork(self, parents: Tensor) -> None:
        super().fork(parents)
        assert self._place is not None, "an open stream has a place"
        self._place.settle(self.state)

    def close(self) -> None:
        if self._place is not None:
            self._places.give_back(self._place)
        self._place = None
        super().close()

    def _cache(self) -> StaticCache:
        assert self._place is not None, "a place is borrowed first"
        return self._place.cache
