"""Two families of tiny networks with prompts, and ways to record a step: what tests of static streams share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from engine.moss.frames import FrameNetwork
from engine.moss.graphs import Record, Recorder, Replay
from engine.moss.prompt import Prompt
from engine.moss.static_stream import FramePlaces, StaticStream
from engine.moss.stream import MossStream, RandomDraws
from search.config import Sampling
from search.noise import RowNoise
from tests.tiny import tiny_moss_config, tiny_moss_network
from tests.tiny_nano import tiny_nano_config, tiny_nano_network

IDS = ("a", "b", "c")
MOSS = tiny_moss_network(tiny_moss_config())
NANO = tiny_nano_network(tiny_nano_config(), spoken_books=2)  # one book less than it has
NETWORKS: dict[str, FrameNetwork] = {"moss": MOSS, "nano": NANO}


class Counted:
    """Counts what it would record."""

    seconds = 0.0

    def __init__(self) -> None:
        self.made = 0

    def place(self) -> Record:
        def record(step: Callable[[], None], rewind: Replay) -> Replay:
            self.made += 1
            step()
            rewind()
            return step

        return record


class Traced:
    """Replays what the operations of one run were, on the same tensors: as a CUDA graph does, whatever has changed."""

    seconds = 0.0

    def __init__(self) -> None:
        self.made = 0

    def place(self) -> Record:
        return self._traced

    def _traced(self, step: Callable[[], None], rewind: Replay) -> Replay:
        def run() -> tuple[()]:
            step()
            return ()

        self.made += 1
        with torch.inference_mode(False):
            traced = make_fx(run)()
        rewind()
        return lambda: traced() and None


def prompt(network: FrameNetwork, length: int) -> Prompt:
    """With a frame of reference audio in the middle."""
    books, generator = network.config.books, torch.Generator().manual_seed(length)
    rows = torch.full((length, 1 + books), network.config.audio_pad)
    rows[:, 0] = torch.randint(10, 96, (length,), generator=generator)
    rows[length // 2, 1:] = torch.randint(0, 16, (books,), generator=generator)
    return Prompt(rows, rows[-2:])


@dataclass(frozen=True)
class Case:
    """Streams of the same requests, noise and settings."""

    network: FrameNetwork
    which: Sequence[int]
    n: int
    sampling: Sampling
    guidance: float = 1.0

    def plain(self) -> MossStream:
        penalty = self.sampling.repetition_penalty
        return MossStream(self.network, self._prompts, self.n, self._draws, guidance=self.guidance, penalty=penalty)

    def static(self, recorder: Recorder, budget: int = 0) -> StaticStream:
        return self.on(FramePlaces(self.network, recorder), budget)

    def on(self, places: FramePlaces, budget: int = 0) -> StaticStream:
        return StaticStream(
            self.network,
            self._prompts,
            self.n,
            self._draws,
            guidance=self.guidance,
            sampling=self.sampling,
            places=places,
            budget=budget,
        )

    @property
    def _prompts(self) -> list[Prompt]:
        return [prompt(self.network, (21, 5, 40)[index]) for index in self.which]

    @property
    def _draws(self) -> RandomDraws:
        noise = RowNoise(self.sampling.seed, [IDS[index] for index in self.which], self.n)
        return RandomDraws(noise, self.sampling, self.network.config.books)


def live(stream: MossStream) -> Tensor:
    """Bool [S * R]: rows of requests that go on. What the others would say is thrown away."""
    state = stream.state
    sides = len(state.hidden) // len(state.finished)
    going = ~state.finished.view(-1, state.cache.n).all(1)
    return going.repeat_interleave(state.cache.n).repeat(sides)
