"""A scorer that took no part in a search hears what the search chose: resumable, a file a unit, a table a judge.

A take that it cannot hear costs no other: the error is kept in the place of figures, and the take is tried again.
Knows nothing of how the audio came about.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from experiments.commands.outcome import described
from experiments.judge.measures import measures
from experiments.prompts import Prompt
from experiments.sweep.files import plain_json, read_lines, sum_of, write_whole
from experiments.sweep.origin import versions
from experiments.sweep.store import RunStore
from experiments.sweep.tables import scores_of, write_table
from search.protocols import Scorer, Scores
from search.record import json_ready

ERROR = "judge.error"
"""Column: why a unit could not be judged."""


@dataclass(frozen=True)
class Judge:
    """A scorer under the name that its figures are kept under.

    Attributes:
        mark: changes when the judge does, so that figures of another judge are not taken for its own.
        spec: how it was asked for, for those who want to ask again.
    """

    name: str
    scorer: Scorer
    mark: str
    spec: str

    @classmethod
    def of(cls, spec: str, scorer: Scorer) -> Judge:
        """The judge of a scorer's spec: a file by its stem, else the spec without what a file's name cannot hold."""
        return cls(_name_of(spec), scorer, _mark_of(spec), spec)


def other_judge(store: RunStore, spec: str) -> str | None:
    """The spec of another judge that has the same name and has judged in this run; None where there is none.

    A file that was changed is still the same judge, and so is one that was moved; only what is both is another.
    """
    name, mark = _name_of(spec), _mark_of(spec)
    for digest in store.about["units"]:
        try:
            verdict = json.loads(_place(store, name, digest).read_text(encoding="utf-8"))
            other, same_mark = str(verdict["scorer"]), verdict["mark"] == mark
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not same_mark and Path(other) != Path(spec):
            return other
    return None


@dataclass(frozen=True)
class Judged:
    """A unit that was judged; `error` is one line where it could not be, else empty."""

    digest: str
    error: str = ""


def judge_run(store: RunStore, judge: Judge) -> Iterator[Judged]:
    """Judge every unit that is done and was not judged yet, or not without an error; yields them as they are judged."""
    for digest, state in store.states().items():
        if state != "done" or "figures" in (verdict_of(store, judge, digest) or {}):
            continue
        try:
            found, error = _found(store, judge, digest), ""
        except Exception as raised:
            error = described(raised)
            found = {"error": error}
        write_whole(_place(store, judge.name, digest), plain_json(_about(store, judge, digest) | found))
        yield Judged(digest, error)


def write_judgements(store: RunStore, judge: Judge) -> list[Path]:
    """Write `judgements/NAME.parquet` and `.csv`, a row for every unit that was judged or has an error instead."""
    folder = store.folder / "judgements"
    folder.mkdir(exist_ok=True)
    found = {digest: verdict_of(store, judge, digest) for digest in store.about["units"]}
    rows = [
        {"unit": digest, **verdict.get("figures", {ERROR: verdict.get("error")})}
        for digest, verdict in found.items()
        if verdict is not None
    ]
    return write_table(folder / judge.name, rows)


def verdict_of(store: RunStore, judge: Judge, digest: str) -> Mapping[str, Any] | None:
    """What this judge has found in just this audio, "figures" or an "error"; None where it has not heard it."""
    try:
        verdict = json.loads(_place(store, judge.name, digest).read_text(encoding="utf-8"))
        audio = sum_of((store.place(digest) / "audio.wav").read_bytes())["sha256"]
        same = (verdict["run"], verdict["mark"], verdict["audio"]) == (store.run, judge.mark, audio)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return verdict if same else None


def _about(store: RunStore, judge: Judge, digest: str) -> dict[str, Any]:
    """Of which audio and by whom a verdict is."""
    audio = sum_of((store.place(digest) / "audio.wav").read_bytes())["sha256"]
    return {"run": store.run, "unit": digest, "mark": judge.mark, "scorer": judge.spec, "audio": audio}


def _found(store: RunStore, judge: Judge, digest: str) -> dict[str, Any]:
    audio, rate = soundfile.read(store.place(digest) / "audio.wav", dtype="float32")
    unit = store.read(digest, "config.json")
    scores = heard(judge.scorer, Prompt(**unit["prompt"]), audio, rate)
    note = scores.notes[0]
    raw = {name: float(values[0]) for name, values in scores.heads.items()}
    found = {"reward": float(scores.reward[0]), **measures(audio, rate, _seams(store, digest, rate)), **raw}
    figures = {name.replace("score.", "judge.", 1): value for name, value in scores_of(found).items()}
    figures |= {"judge.reward": found["reward"], "judge.transcript": note.get("transcript")}
    return {"figures": json_ready(figures), "notes": json_ready(note)}


def heard(scorer: Scorer, prompt: Prompt, audio: NDArray[np.float32], rate: int) -> Scores:
    """What a scorer finds in a whole take."""
    pcm = torch.from_numpy(audio)[None]
    with torch.inference_mode():
        stream = scorer.open([prompt.request()], 1, rate, 1)
        try:
            return stream.score(pcm, torch.tensor([pcm.shape[1]]), torch.tensor([True]))
        finally:
            stream.close()


def _seams(store: RunStore, digest: str, rate: int) -> list[int]:
    ends = [step["committed_until_seconds"] for step in read_lines(store.place(digest) / "steps.jsonl")]
    return sorted({round(end * rate) for end in ends if end})


def _place(store: RunStore, name: str, digest: str) -> Path:
    return store.place(digest) / f"judge-{name}.json"


def _name_of(spec: str) -> str:
    path = Path(spec)
    return path.stem if path.suffix == ".toml" else spec.replace(":", "-").replace("/", "-")


def _mark_of(spec: str) -> str:
    path = Path(spec).expanduser()
    content = path.read_bytes() if path.suffix == ".toml" else spec.encode()
    return hashlib.sha256(content + json.dumps(versions(), sort_keys=True).encode()).hexdigest()[:16]
