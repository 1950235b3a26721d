"""What a sweep does not tell: optima at the edge of what was swept, and knobs that changed nothing. Knows no tests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.statistics.effects import Effect, many
from experiments.statistics.metrics import Metric
from experiments.statistics.pairing import KNOBS, Grid, pair
from experiments.sweep.study import WHOLE

_LEAST = {"n": 1.0, "beam_width": 1.0, "temperature": 0.0, "top_k": 1.0, "min_seconds": 0.0}
"""Ends beyond which there is nothing to sweep."""


@dataclass(frozen=True)
class Edge:
    """The best configuration lies at an end of what was swept."""

    metric: str
    knob: str
    value: str
    configuration: str
    sentence: str


@dataclass(frozen=True)
class Idle:
    """Values of a knob under which the audio is the same, sample for sample.

    Attributes:
        pairs: (prompt, seed) that were compared, over all settings of the other knobs.
        whole: no value of the knob changed anything.
    """

    knob: str
    values: Sequence[str]
    pairs: int
    whole: bool
    sentence: str


def edges(grid: Grid, metric: Metric, effects: Sequence[Effect]) -> list[Edge]:
    """Ends at which the best mean lies, for a metric of which any difference is shown; else best means nothing."""
    names = [name for name in grid.having(metric.name) if _comparable(name, metric, effects)]
    if len(names) < 2 or not any(one.shown and one.metric == metric.name for one in effects):
        return []
    common = pair(grid, names, metric.name)
    if not len(common.kept):
        return []
    best = names[int((metric.sign * common.means.mean(1)).argmax())]
    found = []
    for knob in grid.varied():
        places = {_place(grid.settings[name][knob]) for name in names} - {None}
        value, place = grid.settings[best][knob], _place(grid.settings[best][knob])
        numbers = sorted(one for one in places if one is not None)
        if place is None or len(numbers) < 2 or place not in (numbers[0], numbers[-1]):
            continue
        if (place == numbers[0] and place == _LEAST.get(knob)) or str(value) == WHOLE:
            continue
        label = "N" if knob == "n" else knob
        sentence = (
            f"{metric.name} is best for {best}: {label} = {value} is the edge of what was swept; "
            "the optimum may lie beyond"
        )
        found.append(Edge(metric.name, knob, str(value), best, sentence))
    return found


def idle_knobs(grid: Grid) -> list[Idle]:
    """Knobs, or pairs of their values, whose audio is identical for every prompt and seed that both have."""
    found = []
    for knob in grid.varied():
        same = {values: _same(grid, pairs) for values, pairs in _twins(grid, knob).items()}
        same = {values: count for values, count in same.items() if count is not None}
        if not same:
            continue
        idle = {values: count for values, count in same.items() if count}
        if len(idle) == len(same):
            values = list(dict.fromkeys(str(one[knob]) for one in grid.settings.values()))
            total = sum(idle.values())
            sentence = f"{knob} changed nothing: the audio is identical in {many(total, 'pair')} ({', '.join(values)})"
            found.append(Idle(knob, values, total, True, sentence))
            continue
        for (first, second), total in idle.items():
            sentence = f"{knob} {first} and {second} gave identical audio in all of {many(total, 'pair')}"
            found.append(Idle(knob, [first, second], total, False, sentence))
    return found


def _twins(grid: Grid, knob: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Configurations that differ in one knob alone, by the two values of it."""
    twins: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for first, second in itertools.combinations(grid.configurations, 2):
        one, other = grid.settings[first], grid.settings[second]
        if [name for name in KNOBS if one[name] != other[name]] == [knob]:
            twins.setdefault((str(one[knob]), str(other[knob])), []).append((first, second))
    return twins


def _same(grid: Grid, pairs: Sequence[tuple[str, str]]) -> int | None:
    """Pairs of takes that are identical if all are, 0 if one is not; None where there is nothing to compare."""
    compared = 0
    for (first, second), prompt, seed in itertools.product(pairs, grid.prompts, grid.seeds):
        sums = [grid.row(name, prompt, seed).get("audio_sha256") for name in (first, second)]
        if None in sums:
            continue
        if sums[0] != sums[1]:
            return 0
        compared += 1
    return compared or None


def _comparable(name: str, metric: Metric, effects: Sequence[Effect]) -> bool:
    return any(
        one.kind == "baseline" and one.metric == metric.name and name in (one.configuration, one.against)
        for one in effects
    )


def _place(value: Any) -> float | None:
    """Where a value lies among those of its knob; None for what has no order."""
    if str(value) == WHOLE:
        return float("inf")
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
