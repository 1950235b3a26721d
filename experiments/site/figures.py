"""Which figures a report has, and what is said under them. Knows how none of them is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.site.cells import label_of
from experiments.site.plots import Plot, Point, against_n, cost_quality, side_by_side
from experiments.statistics import Report, Results
from experiments.statistics.comparisons import comparable, families_of_n
from experiments.statistics.estimates import Estimate
from experiments.statistics.metrics import Metric
from experiments.statistics.pairing import Grid


@dataclass(frozen=True)
class NamedPlot:
    """A figure with its words. `name` is that of its file, and of its place on the page."""

    name: str
    title: str
    caption: str
    plot: Plot

    @property
    def fragment(self) -> str:
        return self.plot.fragment


def figures(report: Report, results: Results) -> list[NamedPlot]:
    """All figures of a report, in the order in which they are to be seen."""
    if len(report.configurations) < 2:
        return []
    grid = Grid.of(results.rows)
    shown = [metric for metric in report.metrics if metric.tested or metric.source == "reward"]
    found = [plot for metric in shown if (plot := _quality(report, grid, metric)) is not None]
    return [*found, *_frontiers(report), *_optimism(report)]


def _quality(report: Report, grid: Grid, metric: Metric) -> NamedPlot | None:
    """Differences to the baseline: over N where N varies, else one below the other."""
    differences = {
        one.configuration: _point(one.size)
        for one in report.effects
        if one.kind == "baseline" and one.metric == metric.name and one.size is not None
    }
    if not differences:
        return None
    label = f"{label_of(metric)}, less that of {report.baseline}"
    name = f"difference-{_plain(metric.name)}"
    caption = (
        f"Paired differences to {report.baseline} with {report.level:.0%} intervals; "
        f"{metric.better or 'neither way'} is better."
    )
    families = families_of_n(grid)
    known = differences | {report.baseline: Point(0.0)}
    lines: dict[str, Mapping[int, Point]] = {}
    for family, members in families.items():
        points = {int(grid.settings[one]["n"]): known[one] for one in members if one in known}
        if len(points) > 1 and comparable(grid, metric, [one for one in members if one in known]):
            lines[_short(family)] = points
    if lines:
        return NamedPlot(name, f"{label_of(metric)} over N.", caption, against_n(name, label, lines))
    rows = {configuration: {"difference": point} for configuration, point in differences.items()}
    return NamedPlot(name, f"{label_of(metric)}.", caption, side_by_side(name, label, rows))


def _frontiers(report: Report) -> list[NamedPlot]:
    means = {(one.configuration, one.metric): one.mean for one in report.summaries}
    metrics = {metric.name: metric for metric in report.metrics}
    found = []
    for one in report.frontiers:
        points = {
            point.configuration: (point.cost, _around(point.quality, means[point.configuration, one.metric]))
            for point in one.points
        }
        name, label = f"cost-{_plain(one.metric)}", label_of(metrics[one.metric])
        plot = cost_quality(name, (one.cost, label), points, one.best)
        found.append(NamedPlot(name, f"Cost and {label}.", f"{one.sentence}.", plot))
    return found


def _optimism(report: Report) -> list[NamedPlot]:
    found = []
    metrics = {metric.name: metric for metric in report.metrics}
    for judge in dict.fromkeys(one.judge for one in report.optimism):
        known = [one for one in report.optimism if one.judge == judge and one.reward_gain and one.judge_gain]
        label = label_of(metrics[judge])
        rows = {
            one.configuration: {"reward": _point(one.reward_gain), label: _point(one.judge_gain)}
            for one in known
            if one.reward_gain and one.judge_gain
        }
        if rows:
            name = f"optimism-{_plain(judge)}"
            plot = side_by_side(name, f"gain over {report.baseline}, in SD between {known[0].unit}", rows)
            title = f"What selection sees, and what {label} hears."
            caption = "Where the reward gains and the judge does not, takes were chosen for what they seem."
            found.append(NamedPlot(name, title, caption, plot))
    return found


def _point(size: Estimate) -> Point:
    return _around(size.mean, size)


def _around(value: float, size: Estimate | None) -> Point:
    interval = size.bootstrap if size else None
    return Point(value, interval.low, interval.high) if interval else Point(value)


def _short(family: str) -> str:
    return family.replace("beam_width ", "beam ").replace("chunk_ms ", "chunk ").replace("all else the same", "N alone")


def _plain(name: str) -> str:
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in name)
