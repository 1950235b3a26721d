"""`chunksearch judge`: add figures to a finished run that its selection has not seen. Knows nothing of heads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.commands.checks import bad_input
from experiments.commands.outcome import DONE, InputError, Outcome
from experiments.commands.terminal import Terminal
from experiments.judge.judge import Judge, judge_run, write_judgements
from experiments.sweep.progress import SweepProgress
from experiments.sweep.store import RunStore
from experiments.sweep.tables import read_table
from scorers.registry import load_scorer


@dataclass(frozen=True)
class Options:
    """The options of `judge` as they were typed."""

    run: Path
    scorer: str
    device: str | None
    as_json: bool


def run(options: Options) -> Outcome:
    """Judge a run. Raises `InputError` for a folder without a run and for a scorer that cannot be used."""
    terminal = Terminal.opened(output_is_data=options.as_json)
    try:
        store = RunStore.open(options.run)
    except ValueError as error:
        raise InputError(f"RUN: {error}") from error
    if options.scorer in store.about["study"]["scorer"]:
        terminal.notes.print(
            f"--scorer: {options.scorer!r} selected in this run; what selects is no judge of its own choice",
            style="yellow",
            markup=False,
        )
    try:
        with terminal.notes.status("loading"):
            judge = Judge.of(options.scorer, load_scorer(options.scorer, options.device))
    except ValueError as error:
        raise bad_input(error, "--scorer") from error
    states = list(store.states().values())
    with SweepProgress(terminal.notes, states.count("done"), doing="listening") as progress:
        for _ in judge_run(store, judge):
            progress.ended(failed=False)
    tables = write_judgements(store, judge)
    judged = len(read_table(tables[0])) if tables else 0
    names = ", ".join(str(path) for path in tables)
    terminal.results.print(f"{judged} of {len(states)} units judged: {names}", markup=False, soft_wrap=True)
    return Outcome(
        DONE, {"judge": judge.name, "judged": judged, "units": len(states), "tables": [str(path) for path in tables]}
    )
