"""The tables of a run as one list of rows: a unit, its timing and what judges found. Knows no statistics.

This is the one module here that reads files; everything else is a function of what it returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.sweep.tables import read_table

Row = Mapping[str, Any]
JUDGE = "judge."
WORDS = "words"
"""Column: words of the prompt's text by the normaliser that word error rates are made with."""


@dataclass(frozen=True)
class Results:
    """A finished run.

    Attributes:
        rows: a unit each, in the order of expansion: the columns of `table`, `timing` and all judgements.
        study, run: its name and id; empty where `run.json` does not say.
        judges: names of the judgements.
    """

    rows: Sequence[Row]
    study: str = ""
    run: str = ""
    judges: Sequence[str] = field(default=())


def load_results(run_folder: Path) -> Results:
    """Join the tables of a run by unit. A run without timing, without judgements or with neither is a run, too.

    Raises:
        ValueError: there is no `table.parquet`.
    """
    table = run_folder / "table.parquet"
    if not table.exists():
        raise ValueError(f"{run_folder}: no table.parquet in it; `chunksearch sweep` writes one when it ends")
    timing = run_folder / "timing.parquet"
    judgements = {path.stem: read_table(path) for path in sorted((run_folder / "judgements").glob("*.parquet"))}
    rows = with_words(read_table(table), run_folder)
    try:
        about = json.loads((run_folder / "run.json").read_text(encoding="utf-8"))
        run, study = str(about["run"]), str(about["study"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        run, study = "", ""
    joined = join(rows, read_table(timing) if timing.exists() else [], judgements)
    return Results(joined, study, run, tuple(judgements))


def join(table: Sequence[Row], timing: Sequence[Row], judgements: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    """Rows of `table`, each with the columns that other tables have for its unit.

    What judges agree on (the length of the audio) is there once. Where two judges give different values under one
    name, "judge.wer" becomes "judge.NAME.wer" for each of them.
    """
    rows = {row["unit"]: dict(row) for row in table}
    found = {name: {row["unit"]: row for row in judged} for name, judged in judgements.items()}
    disputed = _disputed(found)
    for name, judged in [("", {row["unit"]: row for row in timing}), *found.items()]:
        for unit, row in judged.items():
            if unit in rows:
                rows[unit] |= {
                    column.replace(JUDGE, f"{JUDGE}{name}.", 1) if column in disputed else column: value
                    for column, value in row.items()
                    if column != "unit"
                }
    return list(rows.values())


def with_words(rows: Sequence[Row], run_folder: Path) -> list[dict[str, Any]]:
    """Rows with the column `WORDS`; without it where the package that counts words is not installed."""
    try:
        from scorers.text import reference_of
    except ModuleNotFoundError:
        return [dict(row) for row in rows]
    counts: dict[str, int] = {}
    for row in rows:
        if row["prompt"] not in counts:
            spoken = reference_of(row["text"], _language(run_folder, row["unit"]))
            counts[row["prompt"]] = max(1, len(spoken.words))
    return [{**row, WORDS: counts[row["prompt"]]} for row in rows]


def _language(run_folder: Path, unit: str) -> str | None:
    try:
        config = json.loads((run_folder / "units" / unit / "config.json").read_text(encoding="utf-8"))
        language: str | None = config["prompt"]["language"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return language


def _disputed(judgements: Mapping[str, Mapping[str, Row]]) -> set[str]:
    """Columns under which two judges say different things of one unit."""
    said: dict[tuple[str, str], Any] = {}
    disputed: set[str] = set()
    for judged in judgements.values():
        for unit, row in judged.items():
            for column, value in row.items():
                if column != "unit" and value is not None and said.setdefault((unit, column), value) != value:
                    disputed.add(column)
    return disputed
