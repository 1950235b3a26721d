"""When audio becomes irrevocable: the longest prefix that every kept row shares. Pure functions; knows no audio."""

from __future__ import annotations

from collections.abc import Sequence

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
    """The kept rows that can go on beside the best one (the first) with at most `max_lag` uncommitted frames in any.

    Rows join the best one in the order of their rank, each only if what all of them share then leaves no row of theirs
    with more than that. None never drops a row.
    """
    if max_lag is None:
        return list(kept)
    together: list[int] = []
    for row in kept:
        trial = [*together, row]
        if max(lengths[member] for member in trial) - agreed_frames(frames, lengths, trial) <= max_lag:
            together = trial
    return together
