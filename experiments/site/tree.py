"""What became of every candidate of a take: who continued whom, who was kept, and where each lost. Knows no audio."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.report.marks import with_unit
from search.select import rank

_SHOWN_APART = {"reward", "prefix_wer", "judged", "transcript", "words_heard"}


@dataclass(frozen=True)
class Candidate:
    """One row of one selection.

    Attributes:
        parent: the row of the step before that it continues; None in the first step.
        place: 1 for the best of its step.
        chosen: its audio is in the take.
        kept: the search went on from it.
        fate: in words.
        terms: whatever else the scorer said, by name.
    """

    row: int
    parent: int | None
    place: int
    reward: float
    prefix_wer: float | None
    transcript: str | None
    terms: Mapping[str, object]
    finished: bool
    frames: int
    kept: bool
    chosen: bool
    fate: str


@dataclass(frozen=True)
class Selection:
    """One step. Candidates begin at `begins`, in seconds of the take, and are sorted, best first."""

    number: int
    begins: float
    final_until: float
    candidates: Sequence[Candidate]


def selections_of(records: Sequence[Mapping[str, Any]]) -> list[Selection]:
    """The selections of a take from its step records, as `steps.jsonl` holds them."""
    chosen = _winning_line(records)
    ends = _ends(records)
    begins = 0.0
    found = []
    for place, record in enumerate(records):
        parents = records[place - 1]["parents"] if place else None
        order = rank([_number(score["reward"]) for score in record["scores"]], [_errors(s) for s in record["scores"]])
        candidates = [
            _candidate(record, row, order.index(row) + 1, parents, row == chosen[place], ends[place].get(row))
            for row in order
        ]
        until = record["committed_until_seconds"] or begins
        found.append(Selection(record["step"], begins, until, candidates))
        begins = until
    return found


def _candidate(
    record: Mapping[str, Any], row: int, place: int, parents: Sequence[int] | None, chosen: bool, end: int | None
) -> Candidate:
    score = record["scores"][row]
    reward = _number(score["reward"])
    return Candidate(
        row=row,
        parent=parents[row] if parents else None,
        place=place,
        reward=reward,
        prefix_wer=score["prefix_wer"],
        transcript=score.get("transcript"),
        terms={name: value for name, value in score.items() if name not in _SHOWN_APART},
        finished=record["finished"][row],
        frames=record["lengths"][row],
        kept=row in record["retained_rows"],
        chosen=chosen,
        fate="in the take" if chosen else _fate(record, row, reward, end),
    )


def _fate(record: Mapping[str, Any], row: int, reward: float, end: int | None) -> str:
    """How a candidate that is not in the take was lost. `end`: the step in which the last that continued it lost."""
    if row in record["retained_rows"]:
        return "kept to the end, not best" if end is None else f"kept, lost in step {end}"
    if math.isnan(reward):
        return "lost: no reward"
    behind = min(_number(record["scores"][kept]["reward"]) for kept in record["retained_rows"]) - reward
    return "lost by " + with_unit(behind, "{:.3g}") if behind > 0.0 else "lost, as good as what was kept"


def _winning_line(records: Sequence[Mapping[str, Any]]) -> list[int]:
    """Of every step, the row that the take's end comes from."""
    line: list[int] = []
    for place in range(len(records) - 1, -1, -1):
        last = place == len(records) - 1
        line.append(records[place]["retained_rows"][0] if last else records[place]["parents"][line[-1]])
    return line[::-1]


def _ends(records: Sequence[Mapping[str, Any]]) -> list[dict[int, int]]:
    """Of every step, the kept rows that nobody continues at the end: the step in which their last descendant lost."""
    ends: list[dict[int, int]] = [{} for _ in records]
    living: dict[int, None] = dict.fromkeys(records[-1]["retained_rows"]) if records else {}
    for place in range(len(records) - 2, -1, -1):
        parents, following = records[place]["parents"], records[place + 1]
        continued = {parents[row] for row in living}
        for row in records[place]["retained_rows"]:
            if row not in continued:
                later = [ends[place + 1].get(child) for child, parent in enumerate(parents) if parent == row]
                ends[place][row] = max((step for step in later if step is not None), default=following["step"])
        living = dict.fromkeys(continued)
    return ends


def _number(value: float | None) -> float:
    """A reward of a file, where NaN and what cannot be used are null."""
    return float("nan") if value is None else value


def _errors(score: Mapping[str, Any]) -> float:
    return _number(score["prefix_wer"])
