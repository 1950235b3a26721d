"""The free reading: what the recogniser hears when no text is expected, kept short enough to remember and to fork.

Every sound that is reported is one number: its best class, and all classes that it may as well have been. Knows nothing
of the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from scorers.builtin.symbols import BLANK, CLASSES

DOUBT = 2.3
"""Nats: a class that is at most ten times less likely than the best one may be what was said."""

_BEST_SHIFT = 48
assert CLASSES <= _BEST_SHIFT


@dataclass
class FreeReading:
    """`heard` int64 [R, L], the sounds with zeros behind them; `last` int64 [R], the best class of the newest step."""

    heard: Tensor
    last: Tensor


@dataclass(frozen=True)
class Sound:
    """A reported sound: its `best` class, and `maybe`, a bit for each class that it may be (blank: may be nothing)."""

    best: int
    maybe: int


def open_reading(rows: int, device: torch.device) -> FreeReading:
    """Nothing heard yet."""
    nothing = torch.zeros(rows, 0, dtype=torch.int64, device=device)
    return FreeReading(nothing, torch.full((rows,), BLANK, device=device))


def read_on(reading: FreeReading, log_probabilities: Tensor, steps: Tensor) -> FreeReading:
    """The reading after each row's first `steps` (int64 [R]) steps of log-probabilities float32 [R, T, C].

    A step reports a sound when its best class is one, other than that of the step before; and, where the best is the
    blank, when a sound is in doubt.
    """
    best = log_probabilities.argmax(-1)
    before = torch.cat([reading.last[:, None], best[:, :-1]], 1)
    close = log_probabilities >= log_probabilities.amax(-1, keepdim=True) - DOUBT
    bits = (close.long() << torch.arange(CLASSES, device=best.device)).sum(-1)
    within = torch.arange(best.shape[1], device=best.device) < steps[:, None]
    reported = within & torch.where(best == BLANK, bits != 1 << BLANK, best != before)
    loudest = log_probabilities[..., BLANK + 1 :].argmax(-1) + BLANK + 1
    known = (reading.heard != 0).sum(1)
    places = known[:, None] + reported.cumsum(1) - 1
    longest = int((known + reported.sum(1)).max())
    grown = F.pad(reading.heard, (0, max(0, longest - reading.heard.shape[1]) + 1))
    spare = grown.shape[1] - 1  # where what is not reported goes
    grown.scatter_(1, torch.where(reported, places, spare), bits | loudest << _BEST_SHIFT)
    newest = best.gather(1, (steps - 1).clamp(min=0)[:, None])[:, 0]
    return FreeReading(grown[:, :longest], torch.where(steps > 0, newest, reading.last))


def sounds_of(heard: Tensor) -> list[list[Sound]]:
    """The sounds of every row of `FreeReading.heard`."""
    return [[unpacked(number) for number in row if number] for row in heard.tolist()]


def unpacked(number: int) -> Sound:
    """The sound that one number of `FreeReading.heard` stands for."""
    return Sound(number >> _BEST_SHIFT, number & (1 << _BEST_SHIFT) - 1)
