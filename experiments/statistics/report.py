"""Everything that a run shows, in one record that JSON can hold. Knows no formula and no page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.statistics.comparisons import (
    Summary,
    against_baseline,
    against_control,
    baseline_of,
    controls,
    per_doubling,
    summarise,
)
from experiments.statistics.effects import Draw, Effect, judged
from experiments.statistics.estimates import LEVEL, fewest_prompts
from experiments.statistics.findings import headlines, warnings
from experiments.statistics.frontier import Frontier, frontier
from experiments.statistics.metrics import Better, Metric, metrics_of
from experiments.statistics.pairing import Grid
from experiments.statistics.results import Results
from experiments.statistics.selection import Optimism, optimism
from experiments.statistics.sweep_checks import Edge, Idle, edges, idle_knobs
from search.record import json_ready

FORMAT = 1


@dataclass(frozen=True)
class Configuration:
    """What was run.

    Attributes:
        settings: the knobs that are not the same in all configurations.
        units, failed, hit_frame_limit: how many were asked for, failed or were cancelled, and ended at the limit.
        control: the configuration that is the same but chooses at random; empty for none.
    """

    name: str
    settings: Mapping[str, Any]
    units: int
    failed: int
    hit_frame_limit: int
    control: str


@dataclass(frozen=True)
class Report:
    """What a run shows.

    Attributes:
        baseline: what every configuration is held against.
        alpha: below which adjusted p an effect is shown; tests: how many p were adjusted together.
        level: of every interval, each for itself.
        prompts, seeds: how many of each.
        headlines: what to read first; warnings: what to read before believing it.
        summaries: every metric of every configuration; effects: all differences, tested or described.
    """

    format: int
    study: str
    run: str
    judges: Sequence[str]
    baseline: str
    alpha: float
    tests: int
    level: float
    prompts: int
    seeds: Sequence[int]
    metrics: Sequence[Metric]
    configurations: Sequence[Configuration]
    headlines: Sequence[str]
    warnings: Sequence[str]
    summaries: Sequence[Summary]
    effects: Sequence[Effect]
    optimism: Sequence[Optimism]
    frontiers: Sequence[Frontier]
    edges: Sequence[Edge]
    idle: Sequence[Idle]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists under the names of the fields; what is no finite number is null."""
        plain: dict[str, Any] = json_ready(asdict(self))
        return plain


def report(
    results: Results,
    *,
    baseline: str | None = None,
    tested: Collection[str] | None = None,
    directions: Mapping[str, Better] | None = None,
    draw: Draw | None = None,
) -> Report:
    """Compare all configurations of a run.

    Args:
        baseline: a configuration; None: the first with N = 1, else the first of all.
        tested: metrics whose comparisons are tested, the family; None: those of `metrics`.
        directions: which way metrics are good that this package does not know.
        draw: of bootstrap intervals, and alpha.

    Raises:
        ValueError: `baseline`, `tested` or `directions` names what is not there, or a unit is there twice.
    """
    draw = draw or Draw()
    grid = Grid.of(results.rows)
    if baseline is not None and baseline not in grid.configurations:
        raise ValueError(f"baseline: {baseline!r} is not in this run; it has {', '.join(grid.configurations)}")
    metrics = metrics_of(results.rows, tested, directions or {})
    start = baseline or baseline_of(grid)
    effects = judged(
        [
            one
            for metric in metrics
            for one in (
                *against_baseline(grid, metric, start, draw),
                *(against_control(grid, metric, draw) if metric.tested else ()),
                *(per_doubling(grid, metric, draw) if metric.tested or metric.source == "reward" else ()),
            )
        ],
        draw.alpha,
    )
    chosen = [metric for metric in metrics if metric.tested]
    by_judges = [metric for metric in chosen if metric.source == "judge"]
    reward = next((metric for metric in metrics if metric.source == "reward"), None)
    optimisms = [one for judge in by_judges if reward for one in optimism(grid, reward, judge, start, draw)]
    idle = idle_knobs(grid)
    tests = sum(one.p_wilcoxon is not None for one in effects)
    return Report(
        format=FORMAT,
        study=results.study,
        run=results.run,
        judges=results.judges,
        baseline=start,
        alpha=draw.alpha,
        tests=tests,
        level=LEVEL,
        prompts=len(grid.prompts),
        seeds=grid.seeds,
        metrics=metrics,
        configurations=_configurations(grid),
        headlines=headlines(metrics, effects, optimisms, start),
        warnings=[
            *(one.sentence for one in idle),
            *_too_many_tests(len(grid.prompts), tests, draw.alpha),
            *warnings(grid, metrics, _own_judges(results)),
        ],
        summaries=[summarise(grid, metric, name, draw) for metric in metrics for name in grid.configurations],
        effects=effects,
        optimism=optimisms,
        frontiers=[found for metric in by_judges if (found := frontier(grid, metric)) is not None],
        edges=[edge for metric in chosen for edge in edges(grid, metric, effects)],
        idle=idle,
    )


def _configurations(grid: Grid) -> list[Configuration]:
    varied, chance = grid.varied(), controls(grid)
    found = []
    for name in grid.configurations:
        statuses = [row.get("status") for (owner, _, _), row in grid.units.items() if owner == name]
        settings = {knob: grid.settings[name][knob] for knob in varied}
        failed = statuses.count("failed") + statuses.count("cancelled")
        limit = statuses.count("hit_frame_limit")
        found.append(Configuration(name, settings, len(statuses), failed, limit, chance.get(name, "")))
    return found


def _too_many_tests(prompts: int, tests: int, alpha: float) -> list[str]:
    """A warning where no test could show anything even if all prompts agreed."""
    needed = fewest_prompts(alpha / tests) if tests else 0
    if prompts >= needed:
        return []
    return [f"{prompts} prompts are too few for {tests} tests: nothing can be shown with less than {needed}"]


def _own_judges(results: Results) -> list[str]:
    """Judges that go by the name of a scorer that selected, in the form in which judgements are named."""
    specs = {str(row.get("scorer")) for row in results.rows}
    names = {Path(spec).stem if spec.endswith(".toml") else spec.replace(":", "-").replace("/", "-") for spec in specs}
    return [name for name in results.judges if name in names]
