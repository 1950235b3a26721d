"""One worker's share: loads what a unit needs once, speaks, and keeps what was found. Knows no other worker.

Every worker runs torch on one thread of the CPU: products are then the same however many workers there are, and a run
that was resumed ends with the samples of one that was not.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.registry import load_engine
from experiments.commands.outcome import described
from experiments.report.recorder import Recorder
from experiments.sweep.files import json_lines, plain_json, sum_of
from experiments.sweep.origin import origin
from experiments.sweep.store import RunStore
from experiments.sweep.study import Unit
from scorers.registry import load_scorer
from search import ChunkSearch, SearchFailed, SearchResult
from search.record import wav_bytes


@dataclass(frozen=True)
class Job:
    """Units of one configuration and one seed, spoken in one batch.

    Attributes:
        device, scorer_device: None is the CPU.
    """

    units: Sequence[Unit]
    losers: bool = False
    device: str | None = None
    scorer_device: str | None = None


@dataclass(frozen=True)
class Ended:
    """What became of a unit: "done" or "failed", with the error's one line."""

    digest: str
    state: str
    error: str = ""


def work(folder: Path, job: Job) -> list[Ended]:
    """Speak a job and keep its units in the run of that folder.

    When a batch fails, its units are spoken one by one, so that a unit fails for its own reasons only.
    """
    torch.set_num_threads(1)
    store = RunStore.open(folder)
    try:
        found = speak(job)
    except Exception as error:
        if len(job.units) > 1:
            alone = [Job([unit], job.losers, job.device, job.scorer_device) for unit in job.units]
            return [ended for one in alone for ended in work(folder, one)]
        unit = job.units[0]
        store.write(unit.digest, _failed(unit, error), "failed")
        return [Ended(unit.digest, "failed", described(_cause(error)))]
    for unit, files in zip(job.units, found, strict=True):
        store.write(unit.digest, files, "done")
    return [Ended(unit.digest, "done") for unit in job.units]


def died(store: RunStore, job: Job, cause: str) -> list[Ended]:
    """Keep as failed what a job has not finished, when whoever did it is gone."""
    ended = []
    for unit in job.units:
        if store.state(unit.digest) == "done":
            ended.append(Ended(unit.digest, "done"))
            continue
        store.write(unit.digest, _failed(unit, RuntimeError(cause)), "failed")
        ended.append(Ended(unit.digest, "failed", cause))
    return ended


def speak(job: Job) -> list[dict[str, bytes]]:
    """The files of every unit of a job, by name."""
    first = job.units[0]
    search = _search(first.engine, first.scorer, job.device, job.scorer_device)
    recorders = [Recorder() for _ in job.units]
    results = search.generate_batch(
        [unit.prompt.request() for unit in job.units],
        first.config(search.engine.frame_rate),
        on_step=(lambda candidates: recorders[candidates.index](candidates)) if job.losers else None,
    )
    return [
        _files(unit, result, recorder, len(job.units))
        for unit, result, recorder in zip(job.units, results, recorders, strict=True)
    ]


@lru_cache(maxsize=4)
def _search(engine: str, scorer: str, device: str | None, scorer_device: str | None) -> ChunkSearch:
    return ChunkSearch(load_engine(engine, device), load_scorer(scorer, scorer_device))


def _files(unit: Unit, result: SearchResult, recorder: Recorder, batch: int) -> dict[str, bytes]:
    performance = {name: value for name, value in result.performance.items() if name != "timeline"}
    about = {
        "status": result.status,
        "sample_rate": result.sample_rate,
        "samples": len(result.audio),
        "seconds": result.seconds,
        "frames": len(result.frames),
        "pcm_sha256": sum_of(np.ascontiguousarray(result.audio, dtype="<f4").tobytes())["sha256"],
        "final_search_score": result.performance["final_search_score"],
        "batch": batch,
        "performance": performance,
    }
    files = {
        "config.json": plain_json(unit.plain()),
        "origin.json": plain_json(origin()),
        "steps.jsonl": json_lines(result.steps),
        "result.json": plain_json(about),
        "audio.wav": wav_bytes(result.audio, result.sample_rate),
    }
    for step in recorder.steps:
        for row, pcm in enumerate(step.pcm):
            name = f"candidates/step-{step.record['step']:03d}-row-{row:02d}.wav"
            files[name] = wav_bytes(pcm.astype(np.float32) / 32767.0, result.sample_rate)
    return files


def _failed(unit: Unit, error: Exception) -> dict[str, bytes]:
    about = {"error": described(_cause(error)), "traceback": traceback.format_exception(error), "time": time.time()}
    return {
        "config.json": plain_json(unit.plain()),
        "origin.json": plain_json(origin()),
        "error.json": plain_json(about),
    }


def _cause(error: Exception) -> BaseException:
    return (error.__cause__ or error) if isinstance(error, SearchFailed) else error


def jobs_of(units: Sequence[Unit], batch: int, **where: Any) -> list[Job]:
    """Units in their order, cut into jobs; the cut depends on the study alone, never on what is done already."""
    jobs: list[Job] = []
    group: list[Unit] = []
    for unit in units:
        if group and (
            len(group) == batch or (unit.configuration, unit.seed) != (group[0].configuration, group[0].seed)
        ):
            jobs.append(Job(group, **where))
            group = []
        group.append(unit)
    return [*jobs, Job(group, **where)] if group else jobs
