"""Which rows go on, and how many children each gets. Pure functions of rewards; knows no audio and no model."""

from __future__ import annotations

import math
from collections.abc import Sequence


def rank(rewards: Sequence[float], tie_breaks: Sequence[float] | None = None) -> list[int]:
    """Row numbers from best to worst.

    Higher reward first; rewards that are no number (NaN, either infinity) come last, whatever their sign; ties go to
    the lower tie break (a word error rate), then to the lower row. With no usable reward at all the order is by tie
    break and row, so that a search whose scorer fails still has a defined winner.
    """
    breaks = [0.0] * len(rewards) if tie_breaks is None else tie_breaks

    def key(row: int) -> tuple[bool, float, float, int]:
        usable = math.isfinite(rewards[row])
        worse = breaks[row] if math.isfinite(breaks[row]) else math.inf
        return (not usable, -rewards[row] if usable else 0.0, worse, row)

    return sorted(range(len(rewards)), key=key)


def spread(kept: Sequence[int], n: int) -> list[int]:
    """Parents of the next `n` rows: children evenly over the kept rows (best first), the extra ones to the better."""
    assert 0 < len(kept) <= n, f"{len(kept)} kept rows cannot have {n} children"
    each, extra = divmod(n, len(kept))
    return [row for place, row in enumerate(kept) for _ in range(each + (place < extra))]
