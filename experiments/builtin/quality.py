"""Figures of the quality table, from utterances that have been judged. It does not know who judges, nor how."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from experiments.sweep.files import sum_of_parts

NAMES = {"plain": "plain sampling, N=1", "search": "chunk search, N=8", "whole": "whole utterance, best of 8"}


@dataclass(frozen=True)
class Row:
    """The figures of one configuration: word error rate and share of utterances at the frame limit in percent."""

    configuration: str
    utterances: int
    word_error_rate: float
    perfect: float
    mos: float
    frame_limit: float
    real_time_factor: float
    first_commit_seconds: float | None


def summarise(configuration: str, judged: Iterable[dict[str, Any]]) -> Row:
    """One row of the table; errors are pooled over all words, speed is wall time over seconds of audio.

    A take without audio has no first audio, and is left out of that figure.
    """
    found = list(judged)
    waits = [one["first_commit_seconds"] for one in found if one["first_commit_seconds"] is not None]
    audio = sum(one["seconds"] for one in found)
    return Row(
        configuration=configuration,
        utterances=len(found),
        word_error_rate=100.0 * sum(one["errors"] for one in found) / sum(one["words"] for one in found),
        perfect=100.0 * fmean(one["errors"] == 0 for one in found),
        mos=fmean(one["mos"] for one in found),
        frame_limit=100.0 * fmean(one["status"] == "hit_frame_limit" for one in found),
        real_time_factor=sum(one["wall_seconds"] for one in found) / audio,
        first_commit_seconds=median(waits) if waits else None,
    )


def table(rows: Iterable[Row]) -> str:
    """The rows in Markdown."""
    lines = [
        "| configuration | WER % | perfect % | DNSMOS | frame limit % | real-time factor | first audio s (median) |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {NAMES[row.configuration]} | {row.word_error_rate:.1f} | {row.perfect:.0f} | {row.mos:.2f} "
        f"| {row.frame_limit:.1f} | {row.real_time_factor:.2f} | {_seconds(row.first_commit_seconds)} |"
        for row in rows
    ]
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def digest(paths: Iterable[Path]) -> str:
    """Twelve hex digits of the SHA-256 of what the files hold, in their order."""
    return sum_of_parts(path.read_bytes() for path in paths)[:12]


def restore_lines(path: Path) -> list[dict[str, Any]]:
    """What an earlier run has judged; a last line that was cut short is removed from the file."""
    if not path.exists():
        return []
    whole, newline, _ = path.read_text(encoding="utf-8").rpartition("\n")
    path.write_text(whole + newline, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]
