"""Figures of a study as SVG: colours of the page, text as text, the same bytes for the same numbers.

Every figure comes as a file that looks right by itself, light and dark, and as a fragment for a page that has the
colours already. Knows numbers and their intervals, not where they come from.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, ScalarFormatter

INK, QUIET, LINE = "#010101", "#020202", "#030303"
SERIES = ("#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005", "#0a0006")
_MARKERS = "osD^vP"
_VARIABLES = {
    INK: "var(--ink)",
    QUIET: "var(--quiet)",
    LINE: "var(--line)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(SERIES, 1)},
}
LIGHT = ("#0a6b64", "#b3541e", "#5b4b9a", "#8a7a1f", "#a8386b", "#3a6ea5")
DARK = ("#74c9be", "#e8a06c", "#b3a5ee", "#d3c365", "#e890b7", "#8fbdee")
WIDTH_INCHES = 5.4
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "chunksearch",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": LINE,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handletextpad": 0.3,
    "legend.columnspacing": 1.2,
    "axes.axisbelow": True,
}


@dataclass(frozen=True)
class Point:
    """A number with its interval; without one where there is none to give."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Plot:
    """A figure: a whole SVG file, and what goes into a page."""

    file: str
    fragment: str


def colours() -> str:
    """The colours of series, as custom properties of CSS; they follow the reader's light or dark."""
    light, dark = (
        " ".join(f"--series-{place}: {colour};" for place, colour in enumerate(palette, 1)) for palette in (LIGHT, DARK)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


@mpl.rc_context(_STYLE)
def against_n(name: str, label: str, families: Mapping[str, Mapping[int, Point]]) -> Plot:
    """A metric's difference to the baseline over N, a line a family of configurations that differ in N alone."""
    figure, axes = _begun(3.3)
    sizes = sorted({n for points in families.values() for n in points})
    axes.axhline(0.0, color=QUIET, linewidth=0.8)
    for place, (family, points) in enumerate(families.items()):
        # Lines are moved apart a little, so that intervals at one N can be told from each other.
        shift = 2.0 ** (0.07 * (place - (len(families) - 1) / 2))
        places = [n * shift for n in points]
        _drawn(axes, places, list(points.values()), place, family, upright=True)
        axes.plot(places, [point.value for point in points.values()], color=SERIES[place % len(SERIES)])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("N, candidates")
    axes.set_ylabel(label)
    axes.grid(visible=False, axis="x")
    if len(families) > 1:
        _legend(figure, axes)
    return _finished(figure, name)


@mpl.rc_context(_STYLE)
def cost_quality(
    name: str, labels: tuple[str, str], points: Mapping[str, tuple[float, Point]], best: Sequence[str]
) -> Plot:
    """Quality over cost; configurations that none beats in both are joined and named.

    Args:
        points: by configuration, its cost and its quality.
    """
    figure, axes = _begun(3.3)
    others = [entry for configuration, entry in points.items() if configuration not in best]
    chosen = [points[configuration] for configuration in best]
    for entries, place, label in ((others, 1, "others"), (chosen, 0, "not beaten in both")):
        if entries:
            _drawn(axes, [cost for cost, _ in entries], [point for _, point in entries], place, label, upright=True)
    axes.plot([cost for cost, _ in chosen], [point.value for _, point in chosen], color=SERIES[0])
    for place, configuration in enumerate(best):
        cost, point = points[configuration]
        # Neighbours are named above and below, and the last ones to the left, where there is room.
        left = place > 0 and place >= len(best) - 2
        axes.annotate(
            configuration,
            (cost, point.value),
            (-5 if left else 5, -12 if place % 2 else 6),
            textcoords="offset points",
            fontsize=8,
            ha="right" if left else "left",
        )
    costs = [cost for cost, _ in points.values()]
    if max(costs) > 4 * min(costs) > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(_round_steps(costs)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.margins(x=0.12)
    if others:
        _legend(figure, axes)
    return _finished(figure, name)


@mpl.rc_context(_STYLE)
def side_by_side(name: str, label: str, rows: Mapping[str, Mapping[str, Point]]) -> Plot:
    """Several numbers of every configuration on one line each, zero marked."""
    series = list(dict.fromkeys(title for row in rows.values() for title in row))
    figure, axes = _begun(1.0 + len(rows) * (0.12 + 0.11 * len(series)))
    axes.axvline(0.0, color=QUIET, linewidth=0.8)
    for place, title in enumerate(series):
        known = [(number, row[title]) for number, row in enumerate(rows.values()) if title in row]
        shift = 0.34 * (place - (len(series) - 1) / 2)
        _drawn(axes, [number + shift for number, _ in known], [p for _, p in known], place, title, upright=False)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="y")
    if len(series) > 1:
        _legend(figure, axes)
    return _finished(figure, name)


def _begun(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    return figure, figure.add_subplot()


def _drawn(
    axes: Axes, places: Sequence[float], points: Sequence[Point], place: int, label: str, *, upright: bool
) -> None:
    """Points with their intervals, along one axis or the other."""
    below = [0.0 if point.low is None else max(0.0, point.value - point.low) for point in points]
    above = [0.0 if point.high is None else max(0.0, point.high - point.value) for point in points]
    values = [point.value for point in points]
    across, along = (places, values) if upright else (values, places)
    axes.errorbar(
        across,
        along,
        xerr=None if upright else (below, above),
        yerr=(below, above) if upright else None,
        fmt=_MARKERS[place % len(_MARKERS)],
        color=SERIES[place % len(SERIES)],
        elinewidth=1.1,
        label=label,
    )


def _legend(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)


def _round_steps(costs: Sequence[float]) -> list[float]:
    """Numbers that are easy to read, on a logarithmic axis."""
    steps = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    return [step for step in steps if min(costs) * 0.8 <= step <= max(costs) * 1.25]


def _finished(figure: Figure, name: str) -> Plot:
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'xlink:href="#', f'href="#{name}-', text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {box[0]} stroke-linejoin="round">'
    return Plot(f"{start}<style>{_page_colours()}</style>{rest}", f"{start}{rest}")


def _page_colours() -> str:
    """What a page's style sheet has, for a figure that is looked at alone; `tests` compare both."""
    light, dark = (
        "--ink: #1f1e1b; --quiet: #6d6a62; --line: #e3dfd4;",
        "--ink: #e9e6df; --quiet: #9c9a93; --line: #303236;",
    )
    return (
        f":root {{ {light} background: #fbfaf6; }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} "
        f"background: #151618; }} }} {colours()}"
    )
