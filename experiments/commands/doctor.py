"""`chunksearch doctor`: show what this machine has, what is missing and what to do.

Knows how findings are shown; what to look at is in `experiments/doctor.py`.
"""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table

from experiments.commands.outcome import DONE, FAILED, Outcome
from experiments.commands.terminal import Terminal
from experiments.doctor import examine

_MARKS = {"ok": "[green]ok[/]", "missing": "[red]missing[/]", "optional": "[dim]not there[/]"}


def run(*, as_json: bool) -> Outcome:
    """Examine this machine; fails when something needed is missing."""
    terminal = Terminal.opened(output_is_data=as_json)
    findings = examine()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        advice = f" [dim]→ {_plain(finding.advice)}[/]" if finding.advice else ""
        table.add_row(_MARKS[finding.state], _plain(finding.subject), _plain(finding.found) + advice)
    terminal.results.print(table)
    missing = [finding.subject for finding in findings if finding.state == "missing"]
    data = {"healthy": not missing, "findings": [asdict(finding) for finding in findings]}
    if missing:
        return Outcome(FAILED, data, f"missing: {', '.join(missing)}")
    return Outcome(DONE, data)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
