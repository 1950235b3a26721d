"""`chunksearch sweep`: expand a study, say what it will cost, run what is not there yet, write the tables.

Knows nothing of how units are spoken, kept or scheduled.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from rich.table import Table

from engine.registry import load_engine
from experiments.commands.checks import bad_input
from experiments.commands.outcome import DONE, FAILED, InputError, Outcome
from experiments.commands.terminal import Terminal
from experiments.sweep.executors import EXECUTORS, Executor, executor_of
from experiments.sweep.origin import fingerprint, origin
from experiments.sweep.progress import SweepProgress
from experiments.sweep.store import RunStore
from experiments.sweep.study import Expansion, StudySpec, Unit, expand, read_study, study_of
from experiments.sweep.work import Job, jobs_of
from scorers.registry import check_scorer

SECONDS_PER_CHARACTER = 0.065
"""Of ordinary English speech; for the estimate alone."""


@dataclass(frozen=True)
class Options:
    """The options of `sweep` as they were typed. `written` are keys of a study, each in the place of the file's."""

    study: Path | None
    written: Mapping[str, Any]
    output: Path | None
    resume: bool
    dry_run: bool
    executor: str
    workers: int | None
    part: str | None
    device: str | None
    scorer_device: str | None
    as_json: bool


def typed(
    settings: Mapping[str, str | None], lists: Mapping[str, str | None], plain: Mapping[str, Any]
) -> dict[str, Any]:
    """Keys of a study from options: values separated by commas; what was not given is not there."""
    given = {name: _values(text) for name, text in settings.items() if text is not None}
    return {
        **{name: _values(text) for name, text in lists.items() if text is not None},
        **{name: value for name, value in plain.items() if value is not None},
        **({"settings": given} if given else {}),
    }


def _values(text: str) -> list[Any]:
    return [_value(one.strip()) for one in text.split(",")]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def run(options: Options) -> Outcome:
    """Run a study. Raises `InputError` before anything is loaded, where it cannot be run as it is written."""
    terminal = Terminal.opened(output_is_data=options.as_json)
    spec, expansion = _expanded(options)
    part = _part(options.part)
    _check_engines(spec, expansion, options)
    terminal.results.print(_cost(expansion))
    about = {"units": len(expansion.units), "configurations": expansion.configurations, "dropped": expansion.dropped}
    if options.dry_run:
        return Outcome(DONE, about)
    if options.executor not in EXECUTORS:
        raise InputError(f"--executor: {options.executor!r} is not known; allowed are {', '.join(EXECUTORS)}")
    if options.output is None:
        raise InputError("-o: a folder is needed, such as -o runs/mine")
    try:
        execute = executor_of(options.executor)
        store = _opened(options, spec, expansion)
        lock = store.lock(shared=options.part is not None)
    except ValueError as error:
        raise bad_input(error, "-o") from error
    jobs = jobs_of(
        expansion.units, spec.batch, losers=spec.losers, device=options.device, scorer_device=options.scorer_device
    )[part]
    with lock:
        if options.part is None:
            store.clean()
        _run_jobs(store, jobs, execute, _workers(options), terminal)
        return _concluded(store, terminal, about, whole=options.part is None)


def _run_jobs(store: RunStore, jobs: Sequence[Job], execute: Executor, workers: int, terminal: Terminal) -> None:
    states = {unit.digest: store.state(unit.digest) for job in jobs for unit in job.units}
    left = [job for job in jobs if any(states[unit.digest] != "done" for unit in job.units)]
    if len(left) < len(jobs):
        terminal.notes.print(f"{len(jobs) - len(left)} of {len(jobs)} jobs are done already")
    with SweepProgress(terminal.notes, sum(len(job.units) for job in left)) as progress:
        for ended in execute(store.folder, left, workers):
            progress.ended(failed=ended.state == "failed")
            if ended.state == "failed":
                terminal.notes.print(
                    f"{store.place(ended.digest)}: {ended.error}", markup=False, soft_wrap=True, style="red"
                )


def _workers(options: Options) -> int:
    on_gpu = options.device is not None and options.device.startswith("cuda")
    return options.workers or (1 if on_gpu else os.cpu_count() or 1)


def _expanded(options: Options) -> tuple[StudySpec, Expansion]:
    try:
        filed = read_study(options.study).model_dump(exclude_unset=True) if options.study else {}
        settings = {**filed.get("settings", {}), **options.written.get("settings", {})}
        spec = study_of({**filed, **options.written, "settings": settings}, str(options.study or "options"))
        return spec, expand(spec)
    except ValueError as error:
        raise InputError(str(error)) from error


def _check_engines(spec: StudySpec, expansion: Expansion, options: Options) -> None:
    """Scorers are known, chunks whole frames, texts speakable: before the first unit, so that no night is lost."""
    for scorer in spec.scorer:
        try:
            check_scorer(scorer)
        except ValueError as error:
            raise bad_input(error, "scorer") from error
    for name in spec.engine:
        _check_units(name, [unit for unit in expansion.units if unit.engine == name], options.device)
        gc.collect()  # workers load engines of their own: a device has no room for one more
        torch.cuda.empty_cache()


def _check_units(name: str, units: Sequence[Unit], device: str | None) -> None:
    try:
        engine = load_engine(name, device)
    except ValueError as error:
        raise bad_input(error, "engine") from error
    for unit in units:
        try:
            unit.config(engine.frame_rate)
            engine.budget(unit.prompt.request())
        except ValueError as error:
            raise InputError(f"{unit.configuration}, prompt {unit.prompt.id!r}: {error}") from error


def _opened(options: Options, spec: StudySpec, expansion: Expansion) -> RunStore:
    assert options.output is not None
    marks = fingerprint([*spec.engine, *spec.scorer])
    try:
        return RunStore.create(options.output, spec, expansion.units, marks, origin())
    except FileExistsError:
        if not options.resume and options.part is None:
            raise InputError(f"-o: {options.output} holds a run; --resume goes on with it") from None
    return RunStore.resume(options.output, expansion.units, marks)


def _part(part: str | None) -> slice:
    """Jobs of one part of several, such as "3/16": every sixteenth, from the third."""
    if part is None:
        return slice(None)
    try:
        number, of = (int(one) for one in part.split("/"))
    except ValueError:
        number, of = 0, 0
    if not 1 <= number <= of:
        raise InputError(f"--part: {part!r}; give a part and their number, such as 3/16")
    return slice(number - 1, None, of)


def _cost(expansion: Expansion) -> Table:
    """What the study comes to, a row a configuration: candidates and about how much speech they make."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("configuration")
    for heading in ("units", "candidates", "hours of candidates, about"):
        table.add_column(heading, justify="right")
    total: list[Unit] = []
    for name in expansion.configurations:
        units = [unit for unit in expansion.units if unit.configuration == name]
        table.add_row(escape(name), *_figures(units))
        total += units
    table.add_row("all", *_figures(total), style="bold")
    for reason, count in expansion.dropped.items():
        table.add_row(f"({count} combinations left out: {reason})", style="dim")
    return table


def _figures(units: Sequence[Unit]) -> tuple[str, str, str]:
    candidates = sum(unit.settings["n"] for unit in units)
    seconds = sum(unit.settings["n"] * len(unit.prompt.text) * SECONDS_PER_CHARACTER for unit in units)
    return str(len(units)), str(candidates), f"{seconds / 3600:.2f}"


def _concluded(store: RunStore, terminal: Terminal, about: dict[str, Any], *, whole: bool) -> Outcome:
    from experiments.sweep.tables import write_tables

    states = list(store.states().values())
    counts = {state: states.count(state) for state in ("done", "failed", "missing", "torn")}
    data = about | {"run": store.run, "folder": str(store.folder), "states": counts}
    if not whole and counts["missing"] + counts["torn"]:
        terminal.results.print(f"{counts['done']} of {len(states)} units are done; tables follow with the last part")
    else:
        tables = write_tables(store)
        data["tables"] = [str(path) for path in tables]
        names = ", ".join(path.name for path in tables)
        terminal.results.print(f"tables: {names} in {store.folder}", markup=False, soft_wrap=True)
    if counts["failed"]:
        message = f"{counts['failed']} of {len(states)} units failed; see units/*/error.json, and --resume tries again"
        return Outcome(FAILED, data, message)
    return Outcome(DONE, data)
