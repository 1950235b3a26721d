"""`chunksearch score`: let a scorer hear audio files as it would hear candidates, and show everything it found.

Several files are candidates of one text: rewards that are normalised in the candidate set need more than one. Knows
nothing about heads and rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from rich.table import Table

from experiments.commands import checks
from experiments.commands.outcome import DONE, InputError, Outcome
from experiments.commands.summary import shown
from experiments.commands.terminal import Terminal
from scorers.registry import load_scorer
from search import SpeechRequest
from search.protocols import Scores
from search.select import rank


@dataclass(frozen=True)
class Options:
    """The options of `score` as they were typed. `request` are `SpeechRequest` fields."""

    files: Sequence[Path]
    scorer: str
    device: str | None
    request: dict[str, Any]
    as_json: bool


def run(options: Options) -> Outcome:
    """Score the files. Raises `InputError` for a file, text or scorer that cannot be used."""
    terminal = Terminal.opened(output_is_data=options.as_json)
    try:
        request = SpeechRequest(**options.request)
    except ValueError as error:
        raise InputError(f"--{error}") from error
    audio = [read_audio(path) for path in options.files]
    with terminal.notes.status("listening"):
        try:
            scores = heard(audio, request, options.scorer, options.device)
        except ValueError as error:
            raise checks.bad_input(error, "--scorer") from error
    found = [_found(path, scores, row) for row, path in enumerate(options.files)]
    order = rank(scores.reward.tolist(), [one["prefix_wer"] for one in found])
    terminal.results.print(_table([found[row] for row in order]))
    return Outcome(DONE, found[0] if len(found) == 1 else {"files": found, "best": found[order[0]]["file"]})


def read_audio(path: Path) -> tuple[NDArray[np.float32], int]:
    """Mono samples, the mean of all channels, and their rate in Hz, of anything that libsndfile reads."""
    if not path.is_file():
        raise InputError(f"FILE: {str(path)!r} is no file")
    try:
        pcm, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        reason = error.error_string.rstrip(".")
        raise InputError(f"FILE: {str(path)!r} cannot be read ({reason}); give WAV, FLAC, MP3 or OGG") from error
    if not len(pcm):
        raise InputError(f"FILE: {str(path)!r} has no samples")
    return pcm.mean(1), rate


def heard(
    audio: Sequence[tuple[NDArray[np.float32], int]], request: SpeechRequest, scorer: str, device: str | None
) -> Scores:
    """What a scorer finds in whole takes of one request, at the highest of their rates."""
    judge = load_scorer(scorer, device)
    rate = max(one for _, one in audio)
    takes = [torch.from_numpy(pcm if one == rate else soxr.resample(pcm, one, rate)) for pcm, one in audio]
    lengths = torch.tensor([len(take) for take in takes])
    pcm = torch.nn.utils.rnn.pad_sequence(takes, batch_first=True)
    with torch.inference_mode():
        stream = judge.open([request], len(takes), rate, 1)
        try:
            return stream.score(pcm, lengths, torch.ones(len(takes), dtype=torch.bool))
        finally:
            stream.close()


def _found(path: Path, scores: Scores, row: int) -> dict[str, Any]:
    note = scores.notes[row]
    heads = {name: float(values[row]) for name, values in scores.heads.items()}
    return {
        "file": str(path),
        "reward": float(scores.reward[row]),
        "heads": heads,
        "transcript": note.get("transcript"),
        "prefix_wer": heads.get("prefix_wer", float("nan")),
        "notes": {name: value for name, value in note.items() if name != "transcript"},
    }


def _table(found: Sequence[dict[str, Any]]) -> Table:
    """A column a file, best first; a row a term."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for one in found:
        table.add_column(Path(one["file"]).name.replace("[", r"\["), justify="right", overflow="fold")
    table.add_row("reward", *(shown(one["reward"], "{:.4g}") for one in found), style="bold")
    for name in found[0]["heads"]:
        table.add_row(name, *(shown(one["heads"][name], "{:.4g}") for one in found))
    if any(one["transcript"] is not None for one in found):
        table.add_row("transcript", *(str(one["transcript"] or "").replace("[", r"\[") for one in found))
    for name in ("not_judged", "failed"):
        if any(name in one["notes"] for one in found):
            table.add_row(
                name.replace("_", " "), *(str(one["notes"].get(name, "")).replace("[", r"\[") for one in found)
            )
    return table
