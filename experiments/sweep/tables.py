"""Tables of a run: everything that its units found, as Parquet and CSV. Knows nothing of statistics.

`table` and `steps` hold nothing that depends on when, in which order or how fast units were made: of a run that was
killed and resumed they are those of one that was not, byte for byte. What took how long is in `timing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from experiments.sweep.files import partial_of, read_lines
from experiments.sweep.store import RunStore

TIMES = ("search_wall_seconds", "search_rtf", "first_commit_seconds", "tts_codec_seconds", "scoring_seconds")


def write_tables(store: RunStore) -> list[Path]:
    """Write all tables of a run from what its units hold now; units that are missing or torn are in none."""
    states = {digest: state for digest, state in store.states().items() if state in ("done", "failed")}
    done = [digest for digest, state in states.items() if state == "done"]
    tables = {
        "table": [_row(store, digest, state) for digest, state in states.items()],
        "timing": [_timing(store, digest) for digest in done],
        "steps": [row for digest in done for row in _steps(store, digest)],
    }
    return [path for name, rows in tables.items() for path in write_table(store.folder / name, rows)]


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> list[Path]:
    """Write rows as `path`.parquet and `path`.csv; columns are those of any row, in the order in which they come up."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: pa.array([_scalar(row.get(name)) for row in rows]) for name in columns})
    parquet, text = path.with_suffix(".parquet"), path.with_suffix(".csv")
    for place, write in ((parquet, pq.write_table), (text, pyarrow.csv.write_csv)):
        partial = partial_of(place)
        write(table, partial)
        partial.replace(place)
    return [parquet, text]


def read_table(path: Path) -> list[dict[str, Any]]:
    """Rows of a Parquet table."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def scores_of(score: dict[str, Any] | None) -> dict[str, float | None]:
    """The raw terms of a score, as columns; words for people are left out."""
    return {
        f"score.{name}": None if value is None else float(value)
        for name, value in (score or {}).items()
        if isinstance(value, (int, float, type(None))) and not isinstance(value, bool) and name != "reward"
    }


def _row(store: RunStore, digest: str, state: str) -> dict[str, Any]:
    unit = store.read(digest, "config.json")
    row = {
        "unit": digest,
        "configuration": unit["configuration"],
        "engine": unit["engine"],
        "scorer": unit["scorer"],
        **unit["settings"],
        "chunk_ms": str(unit["settings"]["chunk_ms"]),
        "prompt": unit["prompt"]["id"],
        "text": unit["prompt"]["text"],
        "seed": unit["seed"],
    }
    if state == "failed":
        return {**row, "status": "failed", "error": store.read(digest, "error.json")["error"]}
    result = store.read(digest, "result.json")
    score = result["final_search_score"] or {}
    return {
        **row,
        "status": result["status"],
        "error": None,
        "frames": result["frames"],
        "seconds": result["seconds"],
        "audio_sha256": result["pcm_sha256"],
        "steps": sum(1 for _ in read_lines(store.place(digest) / "steps.jsonl")),
        "reward": score.get("reward"),
        "transcript": score.get("transcript"),
        **scores_of(score),
    }


def _timing(store: RunStore, digest: str) -> dict[str, Any]:
    result = store.read(digest, "result.json")
    return {"unit": digest, **{name: result["performance"][name] for name in TIMES}, "batch": result["batch"]}


def _steps(store: RunStore, digest: str) -> Iterable[dict[str, Any]]:
    parents: list[int] = []
    for record in read_lines(store.place(digest) / "steps.jsonl"):
        for row, score in enumerate(record["scores"]):
            kept = record["retained_rows"]
            yield {
                "unit": digest,
                "step": record["step"],
                "row": row,
                "parent": parents[row] if parents else None,
                "rank": kept.index(row) if row in kept else None,
                "frames": record["lengths"][row],
                "finished": record["finished"][row],
                "committed_until_seconds": record["committed_until_seconds"],
                "reward": score["reward"],
                "transcript": score.get("transcript"),
                **scores_of(score),
            }
        parents = record["parents"]


def _scalar(value: Any) -> Any:
    """What a column can hold: lists and mappings are not."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
