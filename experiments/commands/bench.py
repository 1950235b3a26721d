"""`chunksearch bench`: measure something on this machine and show the tables.

Knows nothing of what is measured; that is made in `experiments/bench/`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import torch
from rich.table import Table as Grid

from experiments.bench.engine import bench_engine
from experiments.bench.scorers import FULL, QUICK, bench_scorers
from experiments.bench.timing import Table
from experiments.commands.outcome import DONE, InputError, Outcome
from experiments.commands.terminal import Terminal


def run_scorers(heads: Sequence[str], *, device: str | None, quick: bool, as_json: bool) -> Outcome:
    """Measure heads. Raises `InputError` where nothing of what was asked for can be measured."""
    terminal = Terminal.opened(output_is_data=as_json)
    try:
        with terminal.notes.status("loading") as status:
            tables = bench_scorers(heads, device or "cpu", QUICK if quick else FULL, status.update)
    except ValueError as error:
        raise InputError(str(error)) from error
    return _shown("scorers", tables, device, terminal)


def run_engine(
    spec: str, *, size: str | None, candidates: str, frames: int, device: str | None, as_json: bool
) -> Outcome:
    """Measure frames of an engine. Raises `InputError` for a wrong setting, or an engine that cannot be measured."""
    terminal = Terminal.opened(output_is_data=as_json)
    try:
        counts = [int(one) for one in candidates.split(",")]
    except ValueError:
        raise InputError(f"--n: {candidates!r}; give whole numbers, such as 1,4,8") from None
    try:
        with terminal.notes.status("loading") as status:
            tables = bench_engine(spec, size=size, candidates=counts, frames=frames, device=device, note=status.update)
    except ValueError as error:
        raise InputError(str(error)) from error
    return _shown("engine", tables, device, terminal)


def _shown(kind: str, tables: Sequence[Table], device: str | None, terminal: Terminal) -> Outcome:
    machine = {
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": device or "cpu",
    }
    terminal.results.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    for table in tables:
        if table.rows:
            terminal.results.print(_grid(table))
    return Outcome(DONE, {"kind": kind, "machine": machine, **{table.name: table.rows for table in tables}})


def _grid(table: Table) -> Grid:
    grid = Grid(box=None, header_style="dim", pad_edge=False, title=table.caption, title_justify="left")
    for column, value in table.rows[0].items():
        grid.add_column(column.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in table.rows:
        grid.add_row(*(_number(value) if isinstance(value, float) else str(value) for value in row.values()))
    return grid


def _number(value: float) -> str:
    """With one decimal, below ten with three."""
    return f"{value:,.{1 if abs(value) >= 10 else 3}f}"
