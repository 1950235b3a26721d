"""Where results come from: code, versions, machine, and a fingerprint of all that could change a number.

Knows nothing of studies and results.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from experiments.sweep.files import sum_of_parts

ROOT = Path(__file__).parents[2]
PACKAGES = ("chunksearch", "torch", "numpy", "faster-whisper", "ctranslate2", "onnxruntime", "transformers")
_SPEAKING = ("search", "codec", "engine", "scorers")
_WEIGHTS = (".safetensors", ".pt", ".bin", ".onnx", ".json", ".toml", ".model")


def origin(command: list[str] | None = None) -> dict[str, Any]:
    """Everything that a reader of the results may want to know about how they were made, JSON-ready."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command or sys.argv),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(one) for one in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "versions": versions(),
    }


def versions() -> dict[str, str | None]:
    """Installed versions of the packages that numbers depend on."""
    return {name: _version(name) for name in PACKAGES}


def fingerprint(specs: Iterable[str]) -> dict[str, Any]:
    """What must not change between two halves of a run: versions, code, shipped weights, and files that specs name.

    Code is that of what speaks and listens; how a sweep is kept and shown may be mended while it waits.
    Of files outside this package name, size and date count.
    """
    code, shipped = (
        [path.read_bytes() for folder in _SPEAKING for path in sorted((ROOT / folder).rglob(pattern))]
        for pattern in ("*.py", "*.safetensors")
    )
    found: dict[str, Any] = {f"version of {name}": value for name, value in versions().items() if value}
    found["code"] = sum_of_parts(code)
    found["shipped weights"] = sum_of_parts(shipped)
    for spec in sorted(set(specs)):
        _, named, where = spec.partition(":")
        if not named:  # comes with the package, or is a file that every unit has whole
            continue
        place = Path(where).expanduser()
        files = [place] if place.is_file() else sorted(place.rglob("*")) if place.is_dir() else []
        marks = [
            f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}".encode()
            for path in files
            if path.suffix in _WEIGHTS
        ]
        if marks:
            found[f"files of {spec}"] = sum_of_parts(marks)
    return found


@lru_cache
def _git(*arguments: str) -> str | None:
    """What git says about the code that runs; None where it is no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
