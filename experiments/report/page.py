"""One self-contained HTML page that plays and compares takes: what it shows, in plain data for the template.

Knows step records and takes; how the page looks is in the files beside it. The page loads nothing: audio, style and
script are inside it.
"""

from __future__ import annotations

import base64
import io
import math
import wave
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from experiments.report.marks import outline, with_unit
from experiments.report.recorder import HeardStep, Take
from search.record import pcm16
from search.select import rank

_BAR_SECONDS = 0.04
_SPARK_BARS = 32
_COSTS = {
    "actual_seconds": "audio, s",
    "search_wall_seconds": "search, s",
    "search_rtf": "real-time factor",
    "first_commit_seconds": "first commit after, s",
    "tts_codec_seconds": "generation and codec, s",
    "scoring_seconds": "scoring, s",
    "engine": "engine",
    "scorer": "scorer",
    "device": "device",
    "hit_frame_limit": "frame limit reached",
}
_SHOWN_APART = {"reward", "prefix_wer", "judged", "transcript"}


def rendered_page(texts: Sequence[Sequence[Take]]) -> str:
    """The page. `texts`: for each text, the takes of it that are to be compared."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sounds: dict[str, str] = {}
    shown = [_text(number, takes, sounds) for number, takes in enumerate(texts, 1)]
    return environment.get_template("page.html.j2").render(texts=shown, sounds=sounds)


def _text(number: int, takes: Sequence[Take], sounds: dict[str, str]) -> dict[str, Any]:
    costs = [{label: take.result.performance[name] for name, label in _COSTS.items()} for take in takes]
    return {
        "text": takes[0].result.request.text,
        "takes": [_take(f"text-{number}-take-{place}", take, sounds) for place, take in enumerate(takes, 1)],
        "settings": _rows([asdict(take.result.config) for take in takes]),
        "costs": _rows(costs),
    }


def _take(key: str, take: Take, sounds: dict[str, str]) -> dict[str, Any]:
    result, score, length = take.result, take.final_score, max(1, len(take.result.frames))
    count = max(1, round(result.seconds / _BAR_SECONDS))
    return {
        "key": key,
        "label": take.label or f"N = {result.config.n}",
        "status": result.status.replace("_", " "),
        "rate": result.sample_rate,
        "audio": _wav_base64(result.audio, result.sample_rate),
        "transcript": score.get("transcript"),
        "measures": {
            "audio": with_unit(result.seconds, "{:.2f} s"),
            "reward": with_unit(score.get("reward"), "{:.3g}"),
            "word errors": with_unit(score.get("prefix_wer"), "{:.0%}"),
            "real-time factor": with_unit(result.performance["search_rtf"], "{:.2f}"),
            "first audio after": with_unit(result.performance["first_commit_seconds"], "{:.2f} s"),
        },
        "bar_count": count,
        "outline": outline(result.audio, count),
        "commits": [
            {
                "step": commit.step,
                "left": 100 * commit.start_frame / length,
                "width": 100 * commit.frames / length,
                "ready": with_unit(commit.wall_seconds, "{:.1f} s"),
            }
            for commit in take.commits
        ],
        "steps": [_step(f"{key}-step-{step.record['step']}", step, take, sounds) for step in take.steps],
    }


def _step(key: str, step: HeardStep, take: Take, sounds: dict[str, str]) -> dict[str, Any]:
    record, result = step.record, take.result
    scores = record["scores"]
    order = rank([score["reward"] for score in scores], [score["prefix_wer"] for score in scores])
    usable = [score["reward"] for score in scores if math.isfinite(score["reward"])]
    start = step.start_frame * (len(result.audio) // max(1, len(result.frames)))
    rows = []
    for row in order:
        sounds[f"{key}-row-{row}"] = base64.b64encode(step.pcm[row].astype("<i2").tobytes()).decode()
        reward = scores[row]["reward"]
        rows.append(
            {
                "row": row,
                "sound": f"{key}-row-{row}",
                "parent": step.parents[row] if step.parents else None,
                "place": record["retained_rows"].index(row) if row in record["retained_rows"] else None,
                "ended": record["finished"][row],
                "reward": with_unit(reward, "{:.3g}"),
                "share": 100.0 * _share(reward, usable),
                "prefix_wer": with_unit(scores[row]["prefix_wer"], "{:.0%}"),
                "transcript": scores[row].get("transcript"),
                "terms": _terms(scores[row]),
                "seconds": len(step.pcm[row]) / result.sample_rate,
                "outline": outline(step.pcm[row] / np.float32(32767.0), _SPARK_BARS),
            }
        )
    begins = start / result.sample_rate
    longest = max(row["seconds"] for row in rows)
    return {
        "key": key,
        "number": record["step"],
        "from": f"{begins:.2f}",
        "to": f"{begins + longest:.2f}",
        "committed": with_unit(record["committed_audio_seconds"], "{:.2f} s"),
        "start_sample": start,
        "bar_count": _SPARK_BARS,
        "rows": rows,
    }


def _share(reward: float, usable: Sequence[float]) -> float:
    """Where a reward lies between the lowest (0) and the highest (1) of its step."""
    if not math.isfinite(reward):
        return 0.0
    lowest, highest = min(usable), max(usable)
    return (reward - lowest) / (highest - lowest) if highest > lowest else 1.0


def _terms(score: Mapping[str, object]) -> str:
    """Whatever else the scorer said, in one line."""
    terms = (f"{name} {with_unit(value, '{:.3g}')}" for name, value in score.items() if name not in _SHOWN_APART)
    return " · ".join(terms)


def _rows(columns: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """Mappings with the same names, side by side."""
    return [{"name": name, "values": [_plain(column[name]) for column in columns]} for name in columns[0]]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return with_unit(value, "{:.4g}")
    return "–" if value is None else str(value)


def _wav_base64(audio: NDArray[np.float32], sample_rate: int) -> str:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, sample_rate, 0, "NONE", "not compressed"))
        writer.writeframes(pcm16(audio))
    return base64.b64encode(file.getvalue()).decode()
