"""`chunksearch judge`: add figures to a finished run that its selection has not seen. Knows nothing of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.commands.checks import bad_input
from experiments.commands.outcome import DONE, FAILED, InputError, Outcome
from experiments.commands.terminal import Terminal
from experiments.judge.judge import ERROR, Judge, judge_run, other_judge, write_judgements
from experiments.sweep.progress import SweepProgress
from experiments.sweep.store import RunStore
from experiments.sweep.tables import read_table
from scorers.registry import check_scorer, load_scorer


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
        check_scorer(options.scorer)
        if (other := other_judge(store, options.scorer)) is not None:
            raise InputError(
                f"--scorer: {options.scorer!r} goes by the name of {other!r}, which has judged this run; "
                "give the file another name"
            )
        with terminal.notes.status("loading"):
            judge = Judge.of(options.scorer, load_scorer(options.scorer, options.device))
    except ValueError as error:
        raise bad_input(error, "--scorer") from error
    states = list(store.states().values())
    with SweepProgress(terminal.notes, states.count("done"), doing="listening") as progress:
        for one in judge_run(store, judge):
            progress.ended(failed=bool(one.error))
            if one.error:
                terminal.notes.print(
                    f"{store.place(one.digest)}: {one.error}", markup=False, soft_wrap=True, style="red"
                )
    tables = write_judgements(store, judge)
    return _concluded(terminal, judge, tables, len(states))


def _concluded(terminal: Terminal, judge: Judge, tables: Sequence[Path], units: int) -> Outcome:
    rows = read_table(tables[0])
    failed = sum(row.get(ERROR) is not None for row in rows)
    judged = len(rows) - failed
    names = ", ".join(str(path) for path in tables)
    terminal.results.print(f"{judged} of {units} units judged: {names}", markup=False, soft_wrap=True)
    data = {
        "judge": judge.name,
        "judged": judged,
        "failed": failed,
        "units": units,
        "tables": [str(path) for path in tables],
    }
    if failed:
        message = f"{failed} of {units} units could not be judged; see {ERROR} in the table, and judge again to retry"
        return Outcome(FAILED, data, message)
    return Outcome(DONE, data)
