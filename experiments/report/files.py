"""The folder of a report: `steps.jsonl`, `candidates/`, `summary.json` and `index.html`, beside the audio itself.

Knows the layout of that folder; knows nothing of how a page looks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report.page import rendered_page
from experiments.report.recorder import Take
from search.record import json_ready, write_wav

STEPS, CANDIDATES, SUMMARY, PAGE = "steps.jsonl", "candidates", "summary.json", "index.html"


_OWN_FILES = re.compile(
    rf"{re.escape(STEPS)}|{re.escape(SUMMARY)}|{re.escape(PAGE)}|speech(-n\d+)?\.wav"
    rf"|{CANDIDATES}/text-\d+-take-\d+/step-\d+-row-\d+\.wav"
)
_OWN_FOLDERS = re.compile(rf"{CANDIDATES}(/text-\d+-take-\d+)?")


def checked_folder(folder: Path) -> Path:
    """The folder, if a report can be written there. Nothing is changed, so that an earlier report outlives a mistake.

    Raises:
        ValueError: the folder holds something that no report does, or cannot be written.
    """
    try:
        if folder.is_dir():
            _refuse_what_is_no_report(folder)
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise ValueError(f"report: {str(folder)!r} cannot be written: {error.strerror}") from error
    if not place.is_dir():
        raise ValueError(f"report: {str(place)!r} is a file; name a new folder or an earlier report")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"report: {str(folder)!r} cannot be written: no permission to write in {str(place)!r}")
    return folder


def prepared_folder(folder: Path) -> Path:
    """Make the folder, or empty an earlier report in it: file by file, and only files that a report writes.

    Old candidates that outlive their page would be taken for new ones.

    Raises:
        ValueError: as `checked_folder`.
    """
    checked_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(_contents(folder), reverse=True):  # a folder after what is in it
            if path.is_dir():
                with suppress(OSError):  # a hidden file of the desktop may keep it
                    path.rmdir()
            else:
                path.unlink()
        # Written first and empty: it marks the folder as a report, and shows that it can be written.
        (folder / STEPS).write_text("", "utf-8")
    except OSError as error:
        raise ValueError(f"report: {str(folder)!r} cannot be written: {error.strerror}") from error
    return folder


def _refuse_what_is_no_report(folder: Path) -> None:
    """A name alone proves nothing: a report has its page too, or else the empty mark of one that was cut short."""
    steps = folder / STEPS
    marked = steps.is_file() and (not steps.stat().st_size or (folder / PAGE).is_file())
    foreign = next((path for path in _contents(folder) if not marked or not _is_own(path, folder)), None)
    if foreign is not None:
        raise ValueError(
            f"report: {str(folder)!r} has other files in it ({foreign.relative_to(folder).as_posix()}); "
            "name a new folder or an earlier report"
        )


def _is_own(path: Path, folder: Path) -> bool:
    names = _OWN_FOLDERS if path.is_dir() and not path.is_symlink() else _OWN_FILES
    return bool(names.fullmatch(path.relative_to(folder).as_posix()))


def _contents(folder: Path) -> Iterator[Path]:
    """Files and folders below a folder, without the hidden ones, which desktops leave wherever they look."""
    return (path for path in folder.rglob("*") if not path.name.startswith("."))


def write_report(folder: Path, texts: Sequence[Sequence[Take]], summary: dict[str, Any]) -> None:
    """Write everything but the audio that was chosen.

    Args:
        texts: for each text, the takes of it that are to be compared.
        summary: what a program wants to know, JSON-ready but for NaN.
    """
    lines = [json.dumps(json_ready(record), ensure_ascii=False) for record in _records(texts)]
    (folder / STEPS).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    for text_number, takes in enumerate(texts, 1):
        for take_number, take in enumerate(takes, 1):
            _write_candidates(folder / CANDIDATES / f"text-{text_number}-take-{take_number}", take)
    (folder / SUMMARY).write_text(json.dumps(json_ready(summary), indent=1, ensure_ascii=False) + "\n", "utf-8")
    (folder / PAGE).write_text(rendered_page(texts), "utf-8")


def _records(texts: Sequence[Sequence[Take]]) -> Iterator[dict[str, Any]]:
    for text_number, takes in enumerate(texts, 1):
        for take_number, take in enumerate(takes, 1):
            for step in take.result.steps:
                yield {"text": text_number, "take": take_number, **step}


def _write_candidates(folder: Path, take: Take) -> None:
    if take.steps:
        folder.mkdir(parents=True, exist_ok=True)
    for step in take.steps:
        for row, pcm in enumerate(step.pcm):
            name = f"step-{step.record['step']:03d}-row-{row:02d}.wav"
            write_wav(folder / name, pcm.astype(np.float32) / 32767.0, take.result.sample_rate)
