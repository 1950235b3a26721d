"""What a reading came to, for people and for programs: a table, a line of progress, a JSON-ready object.

Knows the field names of step records and of `performance`; computes nothing that they do not hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from experiments.commands.reading import Reading
from experiments.report.recorder import Take
from search.record import StepRecord


def summary(reading: Reading, output: str | None) -> dict[str, Any]:
    """JSON-ready but for NaN. Sentences come in order; `search_rtf` and `seconds` are of the whole reading."""
    results = [take.result for take in reading.takes]
    seconds = reading.samples / reading.search.engine.sample_rate
    wall = sum(result.performance["search_wall_seconds"] for result in results)
    return {
        "status": _status([result.status for result in results]),
        "output": output,
        "sample_rate": reading.search.engine.sample_rate,
        "seconds": seconds,
        "search_wall_seconds": wall,
        "search_rtf": wall / seconds if seconds else None,
        "first_commit_seconds": results[0].performance["first_commit_seconds"] if results else None,
        "config": asdict(results[0].config) if results else None,
        "sentences": [_sentence(take) for take in reading.takes],
    }


def results_table(takes: Sequence[Take]) -> Table:
    """One row a take."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("audio", "real-time factor", "first commit", "reward"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("transcript", overflow="fold")
    for take in takes:
        cost, score = take.result.performance, take.final_score
        heard = str(score.get("transcript") or "")
        note = "" if take.result.status == "complete" else f"({take.result.status.replace('_', ' ')})"
        table.add_row(
            shown(take.result.seconds, "{:.2f} s"),
            shown(cost["search_rtf"]),
            shown(cost["first_commit_seconds"], "{:.2f} s"),
            shown(score.get("reward"), "{:.3g}"),
            " ".join(filter(None, (heard, note))).replace("[", r"\["),
        )
    return table


def unjudged(takes: Sequence[Take]) -> str:
    """Why no candidate of these takes was ever judged, in words; empty where one was, and where there was no choice."""
    scores = [score for take in takes for record in take.result.steps for score in record["scores"]]
    if not scores or any(score["judged"] for score in scores) or all(take.result.config.n == 1 for take in takes):
        return ""
    return str(next((score["not_judged"] for score in scores if score.get("not_judged")), "no reward was given"))


def step_line(record: StepRecord) -> str:
    """One step in one line of progress."""
    best = record["scores"][record["retained_rows"][0]]
    heard = str(best.get("transcript") or "").replace("[", r"\[")
    return (
        f"step {record['step']}, {record['committed_until_seconds']:.2f} s spoken, "
        f"best reward {shown(best['reward'], '{:.3g}')}  {heard}"
    )


def shown(value: object, form: str = "{:.2f}") -> str:
    """A number for a table; a dash for what is absent or no number."""
    return form.format(value) if isinstance(value, (int, float)) and math.isfinite(value) else "–"


def _sentence(take: Take) -> dict[str, Any]:
    result, score = take.result, take.final_score
    return {
        "text": result.request.text,
        "status": result.status,
        "seconds": result.seconds,
        "transcript": score.get("transcript"),
        "reward": score.get("reward"),
        "prefix_wer": score.get("prefix_wer"),
        "performance": {name: value for name, value in result.performance.items() if name != "timeline"},
    }


def _status(statuses: Sequence[str]) -> str:
    """The worst of the sentences' statuses."""
    for status in ("failed", "cancelled", "hit_frame_limit"):
        if status in statuses:
            return status
    return "complete" if statuses else "failed"
