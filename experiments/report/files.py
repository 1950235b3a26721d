"""The folder of a report: `steps.jsonl`, `candidates/`, `summary.json` and `index.html`, beside the audio itself.

Knows the layout of that folder; knows nothing of how a page looks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report.page import rendered_page
from experiments.report.recorder import Take
from search.record import json_ready, write_wav

STEPS, CANDIDATES, SUMMARY, PAGE = "steps.jsonl", "candidates", "summary.json", "index.html"


def prepared_folder(folder: Path) -> Path:
    """Make the folder, or empty an earlier report in it; any other folder with something in it is refused.

    Old candidates that outlive their page would be taken for new ones.

    Raises:
        ValueError: the folder holds something else, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / STEPS).is_file():
            raise ValueError(f"report: {str(folder)!r} has other files in it; name a new folder or an earlier report")
        shutil.rmtree(folder / CANDIDATES, ignore_errors=True)
        # Written first and empty: it marks the folder as a report, and shows that it can be written.
        (folder / STEPS).write_text("", "utf-8")
    except OSError as error:
        raise ValueError(f"report: {str(folder)!r} cannot be written: {error.strerror}") from error
    return folder


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
        folder.mkdir(parents=True)
    for step in take.steps:
        for row, pcm in enumerate(step.pcm):
            name = f"step-{step.record['step']:03d}-row-{row:02d}.wav"
            write_wav(folder / name, pcm.astype(np.float32) / 32767.0, take.result.sample_rate)
