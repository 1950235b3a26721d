"""Tables of a page: what is in a cell, by what it is sorted, and how numbers are written. Knows no page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.report.marks import with_unit
from experiments.statistics.effects import number
from experiments.statistics.estimates import Interval
from experiments.statistics.metrics import Metric


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        sort: its number; None sorts by the text, and behind all numbers.
        small: second line. verdict: third, coloured by what it says.
        kind: "words" for a text, "word" for a name, "" for a number.
    """

    text: str
    sort: float | None = None
    small: str = ""
    verdict: str = ""
    kind: str = ""
    href: str = ""


@dataclass(frozen=True)
class Head:
    """Head of a column; `words`: of texts, not of numbers."""

    name: str
    note: str = ""
    words: bool = False


@dataclass(frozen=True)
class Row:
    """One row. `name` is its first cell, `play` the take that a button before it plays."""

    name: str
    cells: Sequence[Cell]
    href: str = ""
    play: str = ""


@dataclass(frozen=True)
class Table:
    """A table that can be sorted. `label` is for those who do not see it; `plays`: a column of buttons comes first."""

    label: str
    heads: Sequence[Head]
    rows: Sequence[Row]
    plays: bool = False


def plain(value: float | None, form: str = "{:.3g}", small: str = "") -> Cell:
    """A number; a dash that sorts last for none."""
    return Cell(with_unit(value, form), value, small)


def text_cell(text: str) -> Cell:
    """A text of any length."""
    return Cell(text, kind="words")


def name_cell(text: str) -> Cell:
    """A name, which is not broken."""
    return Cell(text, kind="word")


def measured(value: float | None, interval: Interval | None = None, verdict: str = "", extra: str = "") -> Cell:
    """A mean with its interval, and what a test made of it."""
    if value is None:
        return Cell("–", None, "no value")
    span = "" if interval is None else f"{number(interval.low)} to {number(interval.high)}"
    return Cell(number(value), value, "; ".join(part for part in (span, extra) if part), verdict)


def label_of(metric: Metric) -> str:
    """A metric's name for people: "prefix_wer (judge)"."""
    source = {"judge": "judge", "score": "selecting scorer"}.get(metric.source)
    stem = metric.name.removeprefix("judge.").removeprefix("score.")
    return f"{stem} ({source})" if source else stem


def head_of(metric: Metric) -> Head:
    """Head of a metric's column: its name, and which way is good."""
    return Head(label_of(metric), f"{metric.better} is better" if metric.better else "")
