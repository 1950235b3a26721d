"""A run folder in, a folder of pages out: the same bytes for the same run, whole or not at all.

Knows in which order things are made; what they look like is known elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from experiments.report.marks import outline
from experiments.site.audio import Samples, Sound, Stretch, packed, read_samples, write_flac, write_mp3
from experiments.site.card import card
from experiments.site.figures import NamedPlot, figures
from experiments.site.files import built_aside, checked_place
from experiments.site.index_page import index_page, shown_metrics
from experiments.site.material import Figures, Material, Take, read_material
from experiments.site.plots import colours
from experiments.site.prompt_page import Sounds, prompt_page
from experiments.statistics import Report, report
from experiments.sweep.files import json_lines, plain_json
from experiments.sweep.store import STUDY, RunStore
from experiments.sweep.tables import write_table
from experiments.sweep.toml_text import toml_text

_BAR_SECONDS = 0.04
_FILES = {
    "summary.json": "every number of this page",
    "README.md": "this page as Markdown",
    "data/table.parquet": "a row a take",
    "data/timing.parquet": "how long each took",
    "data/steps.parquet": "a row a candidate and selection",
    "data/audio.parquet": "sums and lengths of all audio",
    "data/run.json": "study, origin, versions",
    "data/study.toml": "the study: run it again with chunksearch sweep study.toml --prompts prompts.jsonl",
    "data/prompts.jsonl": "what was spoken",
    "site.json": "sums of all files",
}


def build(folder: Path, out: Path, encoded: Callable[[Take], None] = lambda _: None) -> Report:
    """Make the site of a run, in the place of an older one.

    Args:
        encoded: told of every take when its audio is written.

    Raises:
        ValueError: the folder has no run with tables, or `out` is something that is no site.
    """
    checked_place(out)
    material = read_material(folder)
    found = report(material.results)
    about = {"name": material.name, "run": material.store.run}
    with built_aside(out, about) as root:
        sounds, files = _write_audio(material, root, encoded)
        tables = _write_data(material, root, files)
        plots = figures(found, material.results)
        _write_pages(material, found, plots, sounds, root)
        (root / "summary.json").write_bytes(plain_json(found.to_json() | {"commands": list(material.commands)}))
        (root / "README.md").write_text(card(material, found, plots, tables), "utf-8")
    return found


def _write_audio(
    material: Material, root: Path, encoded: Callable[[Take], None]
) -> tuple[dict[str, Sounds], list[dict[str, Any]]]:
    """All audio, and a row for each of its files."""
    takes = material.takes
    sounds: dict[str, Sounds] = {}
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for take, (found, files) in zip(
            takes, threads.map(lambda take: _sounds(material.store, take, root), takes), strict=True
        ):
            sounds[take.unit] = found
            rows += [{"unit": take.unit, "kind": kind, **sound.plain()} for kind, sound in files]
            encoded(take)
    return sounds, rows


def _sounds(store: RunStore, take: Take, root: Path) -> tuple[Sounds, list[tuple[str, Sound]]]:
    if take.state != "done":
        return Sounds(), []
    pcm, rate = read_samples(store.place(take.unit) / "audio.wav")
    if not len(pcm):
        return Sounds(), []
    flac, mp3 = (write(root, f"audio/{take.unit}", pcm, rate) for write in (write_flac, write_mp3))
    bars = max(1, round(len(pcm) / rate / _BAR_SECONDS))
    shape = outline(pcm / np.float32(32767.0), bars)
    files = [("take", flac), ("take", mp3)]
    pack, stretches = _pack(store, take, pcm, rate, root)
    if pack is not None:
        files.append(("candidates", pack))
    return Sounds(mp3.file, flac.file, shape, bars, pack.file if pack else "", stretches), files


def _pack(
    store: RunStore, take: Take, winner: Samples, rate: int, root: Path
) -> tuple[Sound | None, Mapping[tuple[int, int], Stretch]]:
    """All candidates of a take in one file; nothing where the run kept none."""
    keys, parts = [], []
    for step in take.selections:
        for one in sorted(step.candidates, key=lambda candidate: candidate.row):
            path = store.place(take.unit) / "candidates" / f"step-{step.number:03d}-row-{one.row:02d}.wav"
            if path.exists():
                keys.append((step.number, one.row))
                parts.append((round(step.begins * rate), read_samples(path)[0]))
    if not parts:
        return None, {}
    pcm, places = packed(winner, parts, rate)
    if not len(pcm):
        return None, {}
    return write_flac(root, f"candidates/{take.unit}", pcm, rate), dict(zip(keys, places, strict=True))


def _write_data(material: Material, root: Path, audio: list[dict[str, Any]]) -> list[str]:
    """What runs the study again, the run's tables, unchanged, and one of all audio; returns names of Parquet files."""
    run, data = material.store.folder, root / "data"
    data.mkdir()
    (data / STUDY).write_text(toml_text(material.store.about["study"]), "utf-8")
    (data / "prompts.jsonl").write_bytes(json_lines([_given(said.prompt) for said in material.prompts]))
    for source in [run / "run.json", *sorted(run.glob("*.parquet")), *sorted(run.glob("*.csv"))]:
        shutil.copyfile(source, data / source.name)
    for source in sorted((run / "judgements").glob("*.*")):
        if source.suffix in (".parquet", ".csv") and not source.name.startswith("."):
            (data / "judgements").mkdir(exist_ok=True)
            shutil.copyfile(source, data / "judgements" / source.name)
    if audio:
        write_table(data / "audio", audio)
    names = sorted(path.relative_to(root).as_posix() for path in data.rglob("*.parquet"))
    return sorted(names, key=lambda name: name != "data/table.parquet")


def _given(prompt: Figures) -> Figures:
    return {name: value for name, value in prompt.items() if value is not None}


def _write_pages(
    material: Material, found: Report, plots: Sequence[NamedPlot], sounds: Mapping[str, Sounds], root: Path
) -> None:
    for named in plots:
        (root / "plots").mkdir(exist_ok=True)
        (root / "plots" / f"{named.name}.svg").write_text(named.plot.file, "utf-8")
    here = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([here, here.parent / "report"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["colours"] = colours()
    files = [
        {"name": name, "what": what}
        for name, what in _FILES.items()
        if (root / name).exists() or not name.startswith("data/")
    ]
    index = index_page(material, found, plots, files)
    (root / "index.html").write_text(environment.get_template("index.html.j2").render(index), "utf-8")
    page = environment.get_template("prompt.html.j2")
    (root / "prompts").mkdir()
    metrics = [metric for metric in shown_metrics(found) if metric.tested or metric.source == "reward"]
    for place, said in enumerate(material.prompts):
        shown = prompt_page(material, place, metrics, sounds)
        (root / "prompts" / f"{said.slug}.html").write_text(page.render(shown), "utf-8")
