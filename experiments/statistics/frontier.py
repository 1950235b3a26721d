"""Cost against quality: which configurations no other beats in both.

By the means alone: of neighbours whose intervals overlap, which one is better is not known. Knows no tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.statistics.metrics import Metric
from experiments.statistics.pairing import Grid, pair

WALL, CANDIDATES = "wall seconds per second of audio", "candidate-seconds per second of audio"


@dataclass(frozen=True)
class Point:
    """One configuration.

    Attributes:
        beaten_by: one on the frontier that costs no more and is no worse; empty for those on it.
    """

    configuration: str
    cost: float
    quality: float
    beaten_by: str


@dataclass(frozen=True)
class Frontier:
    """All configurations that have both, cheapest first.

    Attributes:
        cost: what it is, with its unit.
        best: configurations that are not beaten, cheapest first.
    """

    metric: str
    cost: str
    points: Sequence[Point]
    best: Sequence[str]
    sentence: str


def frontier(grid: Grid, metric: Metric) -> Frontier | None:
    """The frontier of a metric; None without two configurations that have both.

    Configurations are compared on the prompts and seeds that all of them have. The cost is measured where the run was
    timed, wall seconds of all searches over seconds of all audio, else counted: the candidates that are spoken, twice
    with guidance.
    """
    names = grid.having(metric.name)
    if len(names) < 2:
        return None
    common = pair(grid, names, metric.name)
    if not len(common.kept):
        return None
    timed = [_measured(grid, name) for name in names]
    cost = WALL if all(np.isfinite(timed)) else CANDIDATES
    costs = timed if cost == WALL else [_counted(grid, name) for name in names]
    quality = common.means.mean(1).tolist()
    places = sorted(range(len(names)), key=lambda place: (costs[place], -metric.sign * quality[place]))
    points: list[Point] = []
    for place in places:
        mine = (costs[place], -metric.sign * quality[place])
        beaten = [
            (theirs[1], theirs[0], names[other])
            for other in places
            if (theirs := (costs[other], -metric.sign * quality[other])) != mine
            and theirs[0] <= mine[0]
            and theirs[1] <= mine[1]
        ]
        best_of_them = min(beaten)[2] if beaten else ""
        points.append(Point(names[place], costs[place], quality[place], best_of_them))
    best = [point.configuration for point in points if not point.beaten_by]
    sentence = f"{metric.name} for its cost in {cost}: by the means, no other beats {', '.join(best)}"
    return Frontier(metric.name, cost, points, best, sentence)


def _measured(grid: Grid, configuration: str) -> float:
    """Wall seconds over seconds of audio; NaN where nothing was timed."""
    wall, audio = grid.values(configuration, "search_wall_seconds"), grid.values(configuration, "seconds")
    both = np.isfinite(wall) & np.isfinite(audio)
    spoken = float(audio[both].sum())
    return float(wall[both].sum()) / spoken if spoken > 0.0 else float("nan")


def _counted(grid: Grid, configuration: str) -> float:
    settings = grid.settings[configuration]
    guided = settings["guidance"] not in (None, 1, 1.0)
    return float(settings["n"]) * (2.0 if guided else 1.0)
