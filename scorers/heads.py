"""What a reward head is: a scorer that says which numbers it finds. Knows neither models nor rewards.

A head that re-reads everything a row has said at every step is a `ClipHead`; `scorers/rereader.py` makes a scorer of
it. A head that remembers instead, as the built-in listener does, is a scorer already and only names its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from search.protocols import Scorer
from search.request import SpeechRequest


@dataclass(frozen=True)
class Term:
    """A number that a head finds for every row.

    Attributes:
        name: the key in `Scores.heads`, unique among the heads of a reward.
        better: which way is good. Rewards count what is better when lower with a minus sign.
        meaning: what it is, with its unit or range, for documentation and error messages.
    """

    name: str
    better: Literal["higher", "lower"] = "higher"
    meaning: str = ""

    @property
    def sign(self) -> float:
        """1 where higher is better, else -1."""
        return 1.0 if self.better == "higher" else -1.0


class Head(Scorer, Protocol):
    """A scorer that a reward can be composed of.

    Attributes:
        terms: what it puts into `Scores.heads`, always all of them.
        rereads: whether its cost grows with what a row has said, because it hears all of it again at every step.
    """

    terms: tuple[Term, ...]
    rereads: bool


@dataclass(frozen=True)
class Clip:
    """All that one row has said so far.

    Attributes:
        pcm: float32 [S], mono, at the head's sample rate; finite, and never empty.
        committed: how many samples at the front are final and shared by all rows of the request.
        finished: nothing more will be said.
        prepared: what the head's `prepare` made of the request.
    """

    pcm: NDArray[np.float32]
    committed: int
    finished: bool
    prepared: Any


@dataclass(frozen=True)
class Judgement:
    """What a head finds in a clip: all its terms by name, NaN for those that it cannot judge, and words for people."""

    terms: dict[str, float]
    note: dict[str, Any] = field(default_factory=dict)


class ClipHead(Protocol):
    """Judges whole clips. Its first term, with its sign, is the reward of a scorer that uses this head alone."""

    name: str
    device: torch.device
    sample_rate: int
    terms: tuple[Term, ...]

    def prepare(self, request: SpeechRequest) -> Any:
        """What depends on the request alone, made once; `ValueError` for a request that it can never judge."""

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        """One judgement a clip, in order and in one batch; a clip's result does not depend on its batch mates."""
