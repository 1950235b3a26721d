"""What the page of a prompt says: every take to hear, its numbers, and what became of every candidate.

Knows takes and their sounds, not how a page looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.report.marks import with_unit
from experiments.site.audio import Stretch
from experiments.site.cells import Cell, Head, Row, Table, head_of, label_of, name_cell, plain
from experiments.site.material import Material, Said, Take
from experiments.site.tree import Candidate, Selection
from experiments.statistics.effects import many
from experiments.statistics.metrics import Metric


@dataclass(frozen=True)
class Sounds:
    """Where the audio of a take is in the site; empty where there is none.

    Attributes:
        outline, bar_count: its waveform.
        pack: the file of all its candidates.
        stretches: where they are in it, by step and row.
    """

    mp3: str = ""
    flac: str = ""
    outline: str = ""
    bar_count: int = 1
    pack: str = ""
    stretches: Mapping[tuple[int, int], Stretch] | None = None


def prompt_page(
    material: Material, place: int, metrics: Sequence[Metric], sounds: Mapping[str, Sounds]
) -> dict[str, Any]:
    """All that the template of the page needs. `place`: of the prompt among all."""
    said = material.prompts[place]
    before = material.prompts[place - 1] if place else None
    after = material.prompts[place + 1] if place + 1 < len(material.prompts) else None
    shown = [_take(take, metrics, sounds[take.unit]) for take in said.takes]
    return {
        "title": f"{said.id}: {said.prompt['text']}",
        "name": material.name,
        "id": said.id,
        "text": said.prompt["text"],
        "manner": [(name, said.prompt[name]) for name in ("language", "instruction", "reference") if said.prompt[name]],
        "before": before and before.slug,
        "before_name": before and before.id,
        "after": after and after.slug,
        "after_name": after and after.id,
        "overview": _overview(said, metrics, sounds),
        "takes": shown,
        "packs": any(take["pack"] for take in shown),
        "commands": material.commands,
    }


def _overview(said: Said, metrics: Sequence[Metric], sounds: Mapping[str, Sounds]) -> Table:
    """All takes in a row, to be heard one after the other."""
    twins = _twins(said.takes)
    rows = [
        Row(
            take.configuration,
            [
                Cell(str(take.seed), take.seed),
                Cell(take.state if take.state != "done" else str(take.row["status"]).replace("_", " "), kind="word"),
                *(plain(take.figure(metric.name)) for metric in metrics),
                plain(take.figure("seconds"), "{:.2f}"),
                name_cell(twins.get(take.unit, "")),
            ],
            href=f"#take-{take.unit}",
            play=f"take-{take.unit}" if sounds[take.unit].mp3 else "",
        )
        for take in said.takes
    ]
    heads = [Head("configuration", words=True), Head("seed"), Head("status", words=True), *map(head_of, metrics)]
    return Table("Takes", [*heads, Head("seconds"), Head("same audio as", words=True)], rows, plays=True)


def _twins(takes: Sequence[Take]) -> dict[str, str]:
    """Of takes whose samples are those of an earlier one, that one's name."""
    first: dict[str, str] = {}
    found = {}
    for take in takes:
        audio = take.row.get("audio_sha256")
        if audio and first.setdefault(audio, take.label) != take.label:
            found[take.unit] = first[audio]
    return found


def _take(take: Take, metrics: Sequence[Metric], sounds: Sounds) -> dict[str, Any]:
    count = sum(len(step.candidates) for step in take.selections)
    title = f"{many(count, 'candidate')} in {many(len(take.selections), 'selection')}"
    measures = [(label_of(metric), with_unit(take.figure(metric.name), "{:.3g}")) for metric in metrics]
    return {
        "key": f"take-{take.unit}",
        "label": take.label,
        "status": "failed" if take.state == "failed" else str(take.row["status"]).replace("_", " "),
        "error": take.error,
        "mp3": sounds.mp3,
        "flac": sounds.flac,
        "outline": sounds.outline,
        "bar_count": sounds.bar_count,
        "heard": [] if take.error else _heard(take),
        "measures": [] if take.error else [("unit", take.unit), *measures, *_costs(take)],
        "tree_title": title,
        "pack": sounds.pack,
        "steps": [_step(step, sounds.stretches or {}) for step in take.selections],
    }


def _heard(take: Take) -> list[tuple[str, str]]:
    """What scorers and judges heard, with who."""
    found = [("the selecting scorer", take.row.get("transcript"))]
    for name, words in take.row.items():
        if name.startswith("judge.") and name.endswith(".transcript"):
            who = name.removeprefix("judge.").removesuffix("transcript").removesuffix(".")
            found.append((f"the judge {who}".strip(), words))
    return [(who, str(words)) for who, words in found if words is not None]


def _costs(take: Take) -> list[tuple[str, str]]:
    return [
        ("audio", with_unit(take.figure("seconds"), "{:.2f} s")),
        ("real-time factor", with_unit(take.figure("search_rtf"), "{:.2f}")),
        ("first audio after", with_unit(take.figure("first_commit_seconds"), "{:.2f} s")),
    ]


def _step(step: Selection, stretches: Mapping[tuple[int, int], Stretch]) -> dict[str, Any]:
    return {
        "number": step.number,
        "begins": f"{step.begins:.2f} s",
        "until": f"{step.final_until:.2f} s",
        "rows": [_row(one, stretches.get((step.number, one.row))) for one in step.candidates],
    }


def _row(one: Candidate, stretch: Stretch | None) -> dict[str, Any]:
    terms = (f"{name} {with_unit(value, '{:.3g}')}" for name, value in one.terms.items())
    return {
        "row": one.row,
        "parent": one.parent,
        "place": one.place,
        "reward": with_unit(one.reward, "{:.3g}"),
        "wer": with_unit(one.prefix_wer, "{:.0%}"),
        "fate": one.fate + (", ended" if one.finished else ""),
        "words": "" if one.transcript is None else one.transcript or "(nothing heard)",
        "terms": " · ".join(terms),
        "kind": "kept chosen" if one.chosen else "kept" if one.kept else "",
        "lead": f"{stretch.lead:.5f}" if stretch else "",
        "start": f"{stretch.start:.5f}" if stretch else "",
        "end": f"{stretch.end:.5f}" if stretch else "",
    }
