"""When audio becomes irrevocable: the longest prefix that every kept row shares. Pure functions; knows no audio."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def agreed_frames(frames: Tensor, lengths: Sequence[int], kept: Sequence[int]) -> int:
    """Frames of the longest prefix on which all kept rows are equal and real.

    Args:
        frames: [N, T, q] uncommitted frames of one request's rows.
        lengths: real frames of each row; the padding behind them never agrees with anything.
        kept: row numbers.
    """
    shortest = min(lengths[row] for row in kept)
    rows = frames[list(kept), :shortest]
    differs = (rows != rows[:1]).flatten(2).any(-1).any(0)  # [shortest]
    return int(differs.int().argmax()) if differs.any() else shortest


def drop_late(frames: Tensor, lengths: Sequence[int], kept: Sequence[int], max_lag: int | None) -> list[int]:
    """The kept rows that let the best one (the first) stay within `max_lag` uncommitted frames.

    If committing what all rows share would leave more than that, the rows go that disagree with the best row's oldest
    frames: so many that exactly `max_lag` can remain. None never drops a row.
    """
    best = kept[0]
    if max_lag is None or lengths[best] - agreed_frames(frames, lengths, kept) <= max_lag:
        return list(kept)
    due = lengths[best] - max_lag
    oldest = frames[best, :due]
    return [row for row in kept if lengths[row] >= due and torch.equal(frames[row, :due], oldest)]
