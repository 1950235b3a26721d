"""Stage `speech`: the teacher reads the corpus; features are stored in shards of 400 utterances.

Shards are written whole or not at all, and each is seeded by its own number, so that a stopped run goes on where it
was and gives the same data for any number of processes. It does not look at what the features are good for.
"""

import argparse
import json
import logging
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from codec.builtin.spectrum import HOP, SAMPLE_RATE
from experiments.builtin.corpus import sentences_for_evaluation
from experiments.builtin.teacher import Reading, Teacher
from experiments.builtin.whole import written_whole

LOG = logging.getLogger(__name__)
SEED = 20
SHARD = 400
SPEEDS = (0.92, 1.08)
LEAD_UNITS = (4, 7)  # 100 to 150 ms of silence before the first symbol

_teachers: dict[Path, Teacher] = {}


def _teacher(scratch: Path) -> Teacher:
    if scratch not in _teachers:
        _teachers[scratch] = Teacher(scratch)
    return _teachers[scratch]


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def store(readings: Sequence[Reading], path: Path) -> None:
    """Write one shard: `path` (safetensors, flat with offsets) and the texts beside it (.jsonl)."""
    tensors: dict[str, NDArray[Any]] = {
        "harmonic": np.concatenate([r.envelopes.harmonic for r in readings]).astype(np.float16),
        "noise": np.concatenate([r.envelopes.noise for r in readings]).astype(np.float16),
        "mel": np.concatenate([r.envelopes.mel for r in readings]).astype(np.float16),
        "log_pitch": np.concatenate([r.log_pitch for r in readings]).astype(np.float16),
        "voiced": np.concatenate([r.voiced for r in readings]).astype(np.uint8),
        "hop_offsets": _offsets([len(r.voiced) for r in readings]),
        "symbols": np.concatenate([r.symbols for r in readings]).astype(np.int16),
        "symbol_ends": np.concatenate([r.ends for r in readings]),
        "symbol_offsets": _offsets([len(r.symbols) for r in readings]),
    }
    texts = path.with_suffix(".jsonl")
    texts.write_text("".join(json.dumps({"text": r.text}) + "\n" for r in readings), encoding="utf-8")
    with written_whole(path) as partial:
        save_file(tensors, str(partial))


def make_shard(job: tuple[int, list[str], Path]) -> tuple[int, float]:
    """Read one shard's sentences aloud and store them; returns the shard's number and its hours."""
    number, sentences, folder = job
    rng = np.random.default_rng([SEED, number])
    readings = []
    for sentence in sentences:
        speed, lead = float(rng.uniform(*SPEEDS)), int(rng.integers(*LEAD_UNITS))
        reading = _teacher(folder).read(sentence, rng, speed, lead)
        if reading is not None:
            readings.append(reading)
    store(readings, _shard(folder, number))
    return number, _hours(readings)


def _hours(readings: Sequence[Reading]) -> float:
    return sum(len(r.voiced) for r in readings) * HOP / SAMPLE_RATE / 3600


def make_evaluation(folder: Path) -> None:
    """The held-out and the development sentences, at plain speed, with their waveforms' seeds fixed."""
    for name, sentences in zip(("heldout", "devset"), sentences_for_evaluation(), strict=True):
        path = folder / f"{name}.safetensors"
        if path.exists():
            continue
        read = [_teacher(folder).read(text, np.random.default_rng([SEED, 0, i])) for i, text in enumerate(sentences)]
        store([reading for reading in read if reading is not None], path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    os.environ["OMP_NUM_THREADS"] = "1"
    folder = arguments.work / "speech"
    folder.mkdir(parents=True, exist_ok=True)
    make_evaluation(folder)
    corpus = (arguments.work / "corpus.txt").read_text(encoding="utf-8").splitlines()
    shards = [corpus[first : first + SHARD] for first in range(0, len(corpus), SHARD)]
    paths = [_shard(folder, number) for number in range(len(shards))]
    jobs = [(number, lines, folder) for number, lines in enumerate(shards) if not paths[number].exists()]
    total = sum(_stored_hours(path) for path in paths if path.exists())
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for number, hours in pool.imap_unordered(make_shard, jobs):
            total += hours
            LOG.info("shard %d, %.2f hours so far", number, total)
            if total >= arguments.hours:
                break


def _shard(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:02d}.safetensors"


def _stored_hours(path: Path) -> float:
    with safe_open(str(path), framework="numpy") as stored:
        return float(stored.get_slice("voiced").get_shape()[0]) * HOP / SAMPLE_RATE / 3600


if __name__ == "__main__":
    main()
