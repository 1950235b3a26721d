"""`chunksearch verify`: compare a runtime with a golden bundle and show the largest difference of every tensor.

Knows nothing about models; the comparisons are made in `experiments/verify/`.
"""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from experiments.commands.outcome import DONE, FAILED, InputError, Outcome
from experiments.commands.terminal import Terminal
from experiments.verify import verify


def run(kind: str, folder: Path, *, as_json: bool) -> Outcome:
    """Check one bundle. Raises `InputError` for an unknown kind and for a folder that is no such bundle."""
    terminal = Terminal.opened(output_is_data=as_json)
    try:
        with terminal.notes.status(f"checking {folder}"):
            checks = verify(kind, folder)
    except ValueError as error:
        raise InputError(str(error)) from error
    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in ("tensor", "values", "largest difference", ""):
        table.add_column(heading, justify="right" if heading in ("values", "largest difference") else "left")
    for check in checks:
        verdict = "" if check.passed else f"[red]beyond tolerance[/] {check.detail}".rstrip()
        table.add_row(check.name, str(check.compared), f"{check.largest:.3g}", verdict)
    terminal.results.print(table)
    failed = [check.name for check in checks if not check.passed]
    data = {
        "kind": kind,
        "passed": not failed,
        "checks": [
            {"name": check.name, "passed": check.passed, "largest": check.largest, "compared": check.compared}
            for check in checks
        ],
    }
    if failed:
        return Outcome(FAILED, data, f"{len(failed)} of {len(checks)} tensors differ: {', '.join(failed)}")
    terminal.results.print(f"all {len(checks)} tensors agree")
    return Outcome(DONE, data)
