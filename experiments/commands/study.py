"""`chunksearch study`: make the pages of a finished run. Knows nothing of what is on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.commands.outcome import DONE, InputError, Outcome
from experiments.commands.terminal import Terminal
from experiments.sweep.progress import SweepProgress
from experiments.sweep.store import RunStore


@dataclass(frozen=True)
class Options:
    """The options of `study` as they were typed."""

    run: Path
    output: Path
    as_json: bool


def run(options: Options) -> Outcome:
    """Make a site. Raises `InputError` for a folder without a run, and for an output that is something else."""
    terminal = Terminal.opened(output_is_data=options.as_json)
    try:
        from experiments.site.build import build
    except ModuleNotFoundError as error:
        raise InputError(
            f"study: the package {error.name!r} is not installed; pip install 'chunksearch[study]'"
        ) from error
    try:
        store = RunStore.open(options.run)
        with SweepProgress(terminal.notes, len(store.about["units"]), doing="encoding") as progress:
            report = build(options.run, options.output, lambda take: progress.ended(failed=take.state == "failed"))
    except ValueError as error:
        raise InputError(f"study: {error}") from error
    for sentence in report.headlines:
        terminal.results.print(sentence, markup=False)
    for sentence in report.warnings:
        terminal.notes.print(sentence, style="yellow", markup=False)
    page = options.output / "index.html"
    terminal.results.print(str(page), markup=False, soft_wrap=True)
    return Outcome(DONE, {"page": str(page), "report": report.to_json()})
