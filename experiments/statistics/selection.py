"""Selection optimism: what of a gain on the selecting reward a judge does not hear.

Whoever picks the best of N by a noisy reward sees that reward rise, also where nothing became better. Both gains are
put in one unit, the spread between takes of one prompt that were not selected:

    spread^2 = mean over prompts of the variance over seeds (n - 1), in the baseline
    gain = mean over prompts of the paired difference, better being positive, / spread
    optimism = gain of the reward - gain of the judge

With one seed a run does not tell how takes differ, and the spread between prompts has to do. The spread is taken as
known in the intervals, which resample prompts. Knows no tests: the judge's own comparison says what is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.statistics.comparisons import comparable
from experiments.statistics.effects import Draw, many, number, signed, span
from experiments.statistics.estimates import Estimate, Sample, estimate
from experiments.statistics.metrics import Metric
from experiments.statistics.pairing import Grid

Unit = Literal["takes of a prompt", "prompts"]


@dataclass(frozen=True)
class Optimism:
    """Gains of one configuration over the baseline, in standard deviations between `unit`.

    Attributes:
        judge: the metric that selection has not seen.
        reward_gain, judge_gain, gap: None where prompts are missing or do not differ.
    """

    configuration: str
    against: str
    judge: str
    unit: Unit
    prompts: int
    reward_gain: Estimate | None
    judge_gain: Estimate | None
    gap: Estimate | None
    sentence: str


def optimism(grid: Grid, reward: Metric, judge: Metric, baseline: str, draw: Draw) -> list[Optimism]:
    """Of every configuration that selects by the reward that the baseline was scored with."""
    return [
        _optimism(grid, reward, judge, (name, baseline), draw)
        for name in grid.configurations
        if name != baseline and grid.settings[name]["n"] != 1 and comparable(grid, reward, (name, baseline))
    ]


def _optimism(grid: Grid, reward: Metric, judge: Metric, names: tuple[str, str], draw: Draw) -> Optimism:
    values = np.stack([[metric.sign * grid.values(name, metric.name) for name in names] for metric in (reward, judge)])
    common: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(values), axis=(0, 1))
    kept = common.any(1)
    filled = np.where(common, values, 0.0).sum(3)[:, :, kept] / common.sum(1)[kept]
    unit: Unit = "takes of a prompt" if (common.sum(1) > 1).any() else "prompts"
    spreads = [_spread(metric[1], common, unit) for metric in values]
    start = f"{names[0]} against {names[1]}"
    if min(spreads) <= 0.0:
        flat = reward.name if spreads[0] <= 0.0 else judge.name
        why = f"{flat} does not differ between {unit}" if kept.sum() > 1 else many(int(kept.sum()), "prompt")
        sentence = f"{start}: optimism of {reward.name} by {judge.name} cannot be judged: {why}"
        return Optimism(*names, judge.name, unit, int(kept.sum()), None, None, None, sentence)
    gains = [(filled[place, 0] - filled[place, 1]) / spread for place, spread in enumerate(spreads)]
    on_reward, on_judge, gap = (estimate(sample, draw.seed, draw.resamples) for sample in (*gains, gains[0] - gains[1]))
    sentence = (
        f"{start}: {reward.name} gains {signed(on_reward.mean)} SD between {unit}, {judge.name} "
        f"{signed(on_judge.mean)} SD{span(on_judge.bootstrap)}; the reward thinks more of its choice "
        f"by {number(gap.mean)} SD{span(gap.bootstrap)}"
    )
    return Optimism(*names, judge.name, unit, int(kept.sum()), on_reward, on_judge, gap, sentence)


def _spread(values: Sample, common: NDArray[np.bool_], unit: Unit) -> float:
    """Standard deviation of float64 [prompts, seeds]; 0 where nothing differs or too little is there."""
    prompts = [row[there] for row, there in zip(values, common, strict=True) if there.any()]
    if unit == "prompts":
        means = np.array([row.mean() for row in prompts])
        return float(means.std(ddof=1)) if len(means) > 1 and np.ptp(means) > 0.0 else 0.0
    return float(np.sqrt(np.mean([row.var(ddof=1) for row in prompts if len(row) > 1])))
