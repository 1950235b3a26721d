"""Which effects a run has: every configuration against the baseline, the random control, and per doubling of N.

Knows not whether they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.statistics.effects import Draw, Effect, effect
from experiments.statistics.estimates import Estimate, Interval, bootstrap_interval, estimate
from experiments.statistics.metrics import Metric
from experiments.statistics.pairing import KNOBS, Grid, pair, without_dust
from experiments.statistics.results import WORDS

CONTROL = "random"
"""Name of the scorer that chooses at random."""
_IDLE_WITHOUT_CHOICE = ("scorer", "beam_width", "chunk_ms")
"""Knobs that change nothing for N = 1."""


@dataclass(frozen=True)
class Rate:
    """A corpus rate: errors of all prompts over words of all prompts."""

    value: float
    bootstrap: Interval | None


@dataclass(frozen=True)
class Summary:
    """A metric of one configuration by itself.

    Attributes:
        prompts, units: that count; missing: units without a value.
        mean: of the means of prompts; None without any.
        corpus: beside it for word error rates; None where words are not counted.
    """

    configuration: str
    metric: str
    prompts: int
    units: int
    missing: int
    mean: Estimate | None
    corpus: Rate | None


def summarise(grid: Grid, metric: Metric, configuration: str, draw: Draw) -> Summary:
    """A metric of one configuration, seeds averaged inside prompts."""
    found = pair(grid, [configuration], metric.name)
    mean = estimate(found.means[0], draw.seed, draw.resamples) if len(found.kept) else None
    words = np.nan_to_num(grid.values(configuration, WORDS)).max(axis=1, initial=0.0)[found.kept]
    corpus = None
    if metric.is_word_error_rate and len(words) and words.all():
        errors = found.means[0] * words
        interval = bootstrap_interval(errors, words, draw.seed, draw.resamples)
        corpus = Rate(float(errors.sum() / words.sum()), interval)
    return Summary(configuration, metric.name, len(found.kept), found.pairs, found.dropped, mean, corpus)


def baseline_of(grid: Grid) -> str:
    """The first configuration that chooses nothing, else the first; empty without any."""
    plain = [name for name in grid.configurations if grid.settings[name]["n"] == 1]
    return next(iter([*plain, *grid.configurations]), "")


def comparable(grid: Grid, metric: Metric, configurations: Sequence[str]) -> bool:
    """What a scorer says can be compared only with what the same scorer says."""
    return (
        metric.source not in ("reward", "score") or len({grid.settings[one]["scorer"] for one in configurations}) == 1
    )


def against_baseline(grid: Grid, metric: Metric, baseline: str, draw: Draw) -> list[Effect]:
    """Every other configuration less the baseline."""
    others = [name for name in grid.configurations if name != baseline and comparable(grid, metric, (name, baseline))]
    return [_difference("baseline", grid, metric, (name, baseline), draw) for name in others]


def chooses_at_random(grid: Grid, configuration: str) -> bool:
    """Whether its candidates are chosen by chance; with N = 1 nothing is chosen."""
    settings = grid.settings[configuration]
    return settings["n"] != 1 and Path(str(settings["scorer"])).stem == CONTROL


def controls(grid: Grid) -> dict[str, str]:
    """By configuration that searches, the one that is the same but chooses at random."""
    chance = {
        _key(grid.settings[name], ("scorer",)): name for name in grid.configurations if chooses_at_random(grid, name)
    }
    return {
        name: chance[key]
        for name in grid.configurations
        if not chooses_at_random(grid, name) and (key := _key(grid.settings[name], ("scorer",))) in chance
    }


def against_control(grid: Grid, metric: Metric, draw: Draw) -> list[Effect]:
    """Every configuration that has a random control less that control."""
    pairs = [names for names in controls(grid).items() if comparable(grid, metric, names)]
    return [_difference("control", grid, metric, names, draw) for names in pairs]


def families_of_n(grid: Grid) -> dict[str, list[str]]:
    """Configurations that differ in N alone, at least two; what chooses nothing belongs to all that differ in how."""
    families: dict[str, list[str]] = {}
    varied = [knob for knob in grid.varied() if knob != "n"]
    for name in grid.configurations:
        settings = grid.settings[name]
        if settings["n"] != 1:
            label = ", ".join(f"{knob} {settings[knob]}" for knob in varied) or "all else the same"
            families.setdefault(label, []).append(name)
    plain = [name for name in grid.configurations if grid.settings[name]["n"] == 1]
    for members in families.values():
        key = _key(grid.settings[members[0]], ("n", *_IDLE_WITHOUT_CHOICE))
        starts = [name for name in plain if _key(grid.settings[name], ("n", *_IDLE_WITHOUT_CHOICE)) == key]
        members[:0] = starts[:1]
    return {label: members for label, members in families.items() if len(members) > 1}


def per_doubling(grid: Grid, metric: Metric, draw: Draw) -> list[Effect]:
    """Slopes over log2 N: least squares inside each prompt, over what all N have in common."""
    found = []
    for label, members in families_of_n(grid).items():
        compared = [name for name in members if comparable(grid, metric, (name, members[-1]))]
        if len(compared) < 2:
            continue
        sizes = [int(grid.settings[name]["n"]) for name in compared]
        doublings = np.log2(sizes)
        away = doublings - doublings.mean()
        common = pair(grid, compared, metric.name)
        slopes = without_dust(away @ common.means / float(away @ away), common.means)
        names = (label, f"N from {min(sizes)} to {max(sizes)}")
        found.append(effect("doubling", metric, names, slopes, (common.pairs, common.dropped), draw))
    return found


def _difference(kind: Any, grid: Grid, metric: Metric, names: tuple[str, str], draw: Draw) -> Effect:
    common = pair(grid, names, metric.name)
    return effect(kind, metric, names, common.differences, (common.pairs, common.dropped), draw)


def _key(settings: Mapping[str, Any], without: Sequence[str]) -> tuple[Any, ...]:
    return tuple(settings[knob] for knob in KNOBS if knob not in without)
