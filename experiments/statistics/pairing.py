"""Units laid out by configuration, prompt and seed, and paired: what two configurations have in common counts.

Seeds are averaged inside a prompt first, then prompts are the sample: takes of one prompt are no independent evidence.
A pair of which one unit failed, was cancelled or has no finite value is dropped and counted. Knows no tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.statistics.estimates import Sample
from experiments.statistics.results import Row
from experiments.sweep.study import SETTINGS

KNOBS = ("engine", "scorer", *SETTINGS)
_UNUSABLE = ("failed", "cancelled")
_DUST = 1e-9
"""Differences below this part of the largest value are rounding, and count as none."""


@dataclass(frozen=True)
class Grid:
    """All units of a run.

    Attributes:
        configurations: names, in the order in which they come up.
        settings: value of each of `KNOBS`, by configuration.
        prompts, seeds: in the order in which they come up.
        units: by (configuration, prompt, seed).
    """

    configurations: Sequence[str]
    settings: Mapping[str, Mapping[str, Any]]
    prompts: Sequence[str]
    seeds: Sequence[int]
    units: Mapping[tuple[str, str, int], Row]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Grid:
        """Raises `ValueError` where a configuration speaks a prompt twice with one seed."""
        units: dict[tuple[str, str, int], Row] = {}
        for row in rows:
            key = (row["configuration"], row["prompt"], row["seed"])
            if key in units:
                raise ValueError(f"units {units[key]['unit']} and {row['unit']} are both {key}; tables of two runs?")
            units[key] = row
        settings = {row["configuration"]: {knob: row.get(knob) for knob in KNOBS} for row in reversed(rows)}
        names = list(dict.fromkeys(name for name, _, _ in units))
        prompts = list(dict.fromkeys(prompt for _, prompt, _ in units))
        seeds = list(dict.fromkeys(seed for _, _, seed in units))
        return cls(names, {name: settings[name] for name in names}, prompts, seeds, units)

    def row(self, configuration: str, prompt: str, seed: int) -> Row:
        """A unit; empty where it is not there."""
        return self.units.get((configuration, prompt, seed), {})

    def varied(self) -> list[str]:
        """Knobs that do not have one value in all configurations."""
        first = next(iter(self.settings.values()), {})
        return [knob for knob in KNOBS if any(one[knob] != first[knob] for one in self.settings.values())]

    def having(self, column: str) -> list[str]:
        """Configurations with any finite value."""
        return [name for name in self.configurations if np.isfinite(self.values(name, column)).any()]

    def values(self, configuration: str, column: str) -> Sample:
        """Float64 [prompts, seeds]; NaN where there is no usable unit or no finite value."""
        found = [
            [_number(self.row(configuration, prompt, seed), column) for seed in self.seeds] for prompt in self.prompts
        ]
        return np.array(found, dtype=np.float64).reshape(len(self.prompts), len(self.seeds))

    def asked(self, configuration: str) -> NDArray[np.bool_]:
        """Bool [prompts, seeds]: where a unit should be, whatever became of it."""
        found = [[bool(self.row(configuration, prompt, seed)) for seed in self.seeds] for prompt in self.prompts]
        return np.array(found, dtype=np.bool_).reshape(len(self.prompts), len(self.seeds))


@dataclass(frozen=True)
class Paired:
    """What configurations have in common.

    Attributes:
        means: float64 [configurations, prompts kept], the mean over the seeds that all have.
        kept: int64 [prompts kept], places of the prompts in the grid.
        pairs: prompts with seeds that all have.
        dropped: prompts with seeds that were asked of all but did not come out of all.
    """

    means: Sample
    kept: NDArray[np.int64]
    pairs: int
    dropped: int

    @property
    def differences(self) -> Sample:
        """The first configuration less the second, float64 [prompts kept]."""
        return without_dust(self.means[0] - self.means[1], self.means)


def pair(grid: Grid, configurations: Sequence[str], column: str) -> Paired:
    """Pair one metric of two or more configurations."""
    values = np.stack([grid.values(name, column) for name in configurations])
    asked = np.stack([grid.asked(name) for name in configurations]).all(0)
    common: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(values), axis=0)
    kept = np.flatnonzero(common.any(1))
    sums = np.where(common, values, 0.0).sum(2)[:, kept]
    return Paired(sums / common.sum(1)[kept], kept, int(common.sum()), int((asked & ~common).sum()))


def without_dust(differences: Sample, values: Sample) -> Sample:
    """Differences of `values`, those that are but rounding set to 0."""
    return np.where(np.abs(differences) <= _DUST * np.abs(values).max(initial=0.0), 0.0, differences)


def _number(row: Row, column: str) -> float:
    value = row.get(column)
    usable = row.get("status") not in _UNUSABLE and isinstance(value, (int, float)) and math.isfinite(value)
    return float(value) if usable and value is not None else math.nan
