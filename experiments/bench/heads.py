"""What is measured: heads by spec, and the speech that they hear, eight candidates of the built-in voice.

Knows nothing of clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine.registry import load_engine
from scorers.heads import Head
from scorers.placed import PlacedHead, PlacedStream
from scorers.registry import KINDS, load_head
from search.branches import Branches, silenced
from search.config import SearchConfig
from search.request import SpeechRequest

TEXT = "The harbour was quiet that morning, and nobody had seen the boats come in before the rain began to fall."
ROWS = 8
CHUNK_SECONDS = 0.8


@dataclass(frozen=True)
class Speech:
    """Candidates of one text: `pcm` float32 [8, S], and the samples of a second and of a frame."""

    pcm: Tensor
    sample_rate: int
    hop: int

    @property
    def request(self) -> SpeechRequest:
        """What the rows say, with all that a head may want to compare them with: the last row is the voice."""
        return SpeechRequest(TEXT, instruction="A calm voice.", reference=(self.pcm[-1].numpy(), self.sample_rate))

    def first(self, seconds: float) -> Tensor:
        """The beginning of every row in whole frames; a row that is shorter starts again."""
        wanted = round(seconds * self.sample_rate / self.hop) * self.hop
        return self.pcm.repeat(1, -(-wanted // self.pcm.shape[1]))[:, :wanted]


@torch.inference_mode()
def speak() -> Speech:
    """Four seconds of the built-in voice in every row."""
    engine = load_engine("builtin")
    with Branches(engine, None, [SpeechRequest(TEXT)], SearchConfig(n=ROWS)) as rows:
        chunk, pcm = rows.advance(round(4 * engine.frame_rate))
        return Speech(silenced(pcm, chunk.lengths * engine.hop), engine.sample_rate, engine.hop)


@dataclass(frozen=True)
class Candidate:
    """A head that loads here. `load` can be sent to another process."""

    spec: str
    load: Callable[[], Head]


def installed(specs: Sequence[str], device: str) -> tuple[list[Candidate], dict[str, str]]:
    """The heads of specs (`kind`, or `kind:model`) that load, and why the others do not."""
    found, left_out = [], {}
    for spec in specs:
        kind, _, value = spec.partition(":")
        main = KINDS[kind].main if kind in KINDS else None
        load = partial(load_head, kind, {main: value} if main and value else {}, device)
        try:
            load()
        except (ValueError, OSError) as error:
            left_out[spec] = str(error)
        else:
            found.append(Candidate(spec, load))
    return found, left_out


def every_kind() -> list[str]:
    """All kinds of heads but those that hear nothing."""
    return [kind for kind in sorted(KINDS) if kind not in ("fake", "random")]


class Step:
    """One step of some heads side by side: `prepare` has them hear all but the last chunk, `run` the chunk."""

    def __init__(self, heads: Sequence[PlacedHead], speech: Speech, seconds: float, rows: int = ROWS) -> None:
        self._heads, self._speech = heads, speech
        whole = speech.first(seconds)[:rows]
        new = speech.first(CHUNK_SECONDS).shape[1]
        self._before, self._new = whole[:, :-new], whole[:, -new:]
        self._streams: list[PlacedStream] = []

    def prepare(self) -> None:
        self.close()
        for head in self._heads:
            stream = head.open([self._speech.request], len(self._new), self._speech.sample_rate, self._speech.hop)
            self._streams.append(stream)
            # A head that hears everything again at the next step need not judge what is only its beginning.
            wanted = torch.zeros(len(self._new), dtype=torch.bool) if head.rereads else None
            stream.begin(*_heard(self._before), wanted)
            stream.result()

    def run(self) -> None:
        for stream in self._streams:
            stream.begin(*_heard(self._new))
        for stream in self._streams:
            stream.result()

    def close(self) -> None:
        while self._streams:
            self._streams.pop().close()


def _heard(pcm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return pcm, torch.full((len(pcm),), pcm.shape[1]), torch.zeros(len(pcm), dtype=torch.bool)
