"""What the head needs of a model: windows in, text and probabilities out. Knows no model and no weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Decoded:
    """What one window says.

    Attributes:
        text: as decoded.
        tokens: how many there are.
        log_probability: mean of them and of the end, natural logarithm.
        no_speech: probability that there is no speech; NaN where the model has no such token.
        cut: decoding had not ended when the token budget was spent.
        words: (word, begin, end) in seconds of the window, if asked for.
    """

    text: str
    tokens: int
    log_probability: float
    no_speech: float
    cut: bool = False
    words: tuple[tuple[str, float, float], ...] = ()


class Recogniser(Protocol):
    """What the head needs of a model."""

    name: str
    multilingual: bool

    def decode(self, clips: Sequence[NDArray[np.float32]], seconds: int, language: str, timed: bool) -> list[Decoded]:
        """Windows (float32 [S] at 16 kHz), all padded to `seconds`, in one batch; one result each, in order."""
