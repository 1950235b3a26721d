"""All that pages show of a run, read from its folder once. Knows no pages, and judges nothing."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.site.files import SiteError
from experiments.site.tree import Selection, selections_of
from experiments.statistics import Results, load_results
from experiments.sweep.files import read_lines
from experiments.sweep.store import RunStore, State

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Take:
    """One unit of the run.

    Attributes:
        row: its columns of all tables.
    """

    unit: str
    configuration: str
    seed: int
    state: State
    row: Figures
    selections: Sequence[Selection]

    @property
    def error(self) -> str:
        """What it failed of; empty where it did not."""
        return str(self.row.get("error") or "")

    @property
    def label(self) -> str:
        return f"{self.configuration}, seed {self.seed}"

    def figure(self, name: str) -> float | None:
        """A number of it; None where there is none."""
        value = self.row.get(name)
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


@dataclass(frozen=True)
class Said:
    """One prompt and all that was said for it.

    Attributes:
        slug: name of its files: nothing that a path or an address could misread.
    """

    id: str
    slug: str
    prompt: Figures
    takes: Sequence[Take]


@dataclass(frozen=True)
class Material:
    """A run, ready to be shown.

    Attributes:
        gaps: what is not there, in sentences.
        commands: what made the run, its judgements and the site, in that order.
    """

    store: RunStore
    results: Results
    name: str
    prompts: Sequence[Said]
    gaps: Sequence[str]
    commands: Sequence[str]

    @property
    def takes(self) -> list[Take]:
        return [take for said in self.prompts for take in said.takes]


def read_material(folder: Path) -> Material:
    """The run in a folder.

    Raises:
        ValueError: there is none, it has no tables, or they are not those of its units.
    """
    store = RunStore.open(folder)
    states = store.states()
    results = load_results(folder)
    rows = {str(row["unit"]): row for row in results.rows}
    _check(store, states, rows)
    takes: dict[str, list[Take]] = {}
    prompts: dict[str, Figures] = {}
    for digest, state in states.items():
        if state in ("done", "failed"):
            unit = store.read(digest, "config.json")
            selections = selections_of(read_lines(store.place(digest) / "steps.jsonl"))
            prompts[unit["prompt"]["id"]] = unit["prompt"]
            take = Take(digest, unit["configuration"], unit["seed"], state, rows[digest], selections)
            takes.setdefault(unit["prompt"]["id"], []).append(take)
    if not takes:
        raise SiteError(f"{folder}: none of its {len(states)} units is there; run them: chunksearch sweep ... --resume")
    slugs = _slugs(list(takes))
    lost = [state for state in states.values() if state not in ("done", "failed")]
    return Material(
        store=store,
        results=results,
        name=str(store.about["study"]["name"]),
        prompts=[Said(name, slugs[name], prompts[name], found) for name, found in takes.items()],
        gaps=[f"{len(lost)} of {len(states)} units are missing or torn: the run is not complete"] if lost else [],
        commands=_commands(store, folder, results.judges),
    )


def _check(store: RunStore, states: Mapping[str, State], rows: Mapping[str, Figures]) -> None:
    """The tables are of the units as they are now: a figure that no file bears out is shown to nobody."""
    for digest, state in states.items():
        row = rows.get(digest)
        if state == "done":
            fresh = row is not None and row.get("audio_sha256") == store.read(digest, "result.json")["pcm_sha256"]
        elif state == "failed":
            fresh = row is not None and row.get("status") == "failed"
        else:
            fresh = row is None
        if not fresh:
            raise SiteError(
                f"{store.folder}: table.parquet is not of the units that are there now (units/{digest}); "
                "write it again: chunksearch sweep ... --resume"
            )


def _commands(store: RunStore, folder: Path, judges: Sequence[str]) -> list[str]:
    begun = str(store.about["origin"]["command"])
    typed = shlex.split(begun)
    if typed[1:2] == ["sweep"]:
        begun = shlex.join(["chunksearch", *_whole_run(typed[1:])])
    run = shlex.quote(str(folder))
    judged = [f"chunksearch judge {run} --scorer {shlex.quote(_spec(store, name))}" for name in judges]
    return [begun, *judged, f"chunksearch study {run} -o site"]


def _whole_run(words: Sequence[str]) -> list[str]:
    """The command that makes all of a run from the one that began it, which may have been for a part."""
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before != "--part" and word not in ("--part", "--resume")
    ]
    return [word for word in kept if not word.startswith("--part=")]


def _spec(store: RunStore, judge: str) -> str:
    """What `--scorer` was for a judge, as its first verdict has it."""
    found = (store.place(digest) / f"judge-{judge}.json" for digest in store.about["units"])
    first = next((path for path in found if path.exists()), None)
    return judge if first is None else str(store.read(first.parent.name, first.name).get("scorer", judge))


def _slugs(names: Sequence[str]) -> dict[str, str]:
    """A name of its own for each prompt's files: its id, where that is harmless and not taken."""
    found: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_") else "-" for sign in name)[:60]
        taken = {slug.lower() for slug in found.values()}
        found[name] = plain if plain == name and plain.lower() not in taken else f"prompt.{number}"
    return found
