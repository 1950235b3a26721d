"""What this machine has and lacks for speaking: versions, extras, weights, devices, players, and what to do about each.

Looks and reports. It changes nothing, loads no model, and knows nothing about how findings are shown.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open

from experiments.commands.players import PLAYERS, installed_players

DISTRIBUTION = "chunksearch"

State = Literal["ok", "missing", "optional"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: "missing" is needed and not there; "optional" is not there, and only some things need it.
        found: what is there, in words.
        advice: what to do, where something is not there.
    """

    subject: str
    state: State
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Everything that a working installation needs, and what is optional."""
    return [*_versions(), *_packages(), *_weights(), *_devices(), _player()]


def needed(requirement: str) -> tuple[str, str, str]:
    """Name, lowest version and extra of a requirement as package metadata writes it; "" where there is none."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, f"{requirement!r} does not begin with a name"
    lowest = re.search(r">=\s*([0-9.]+)", requirement)
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", requirement)
    return name[0], lowest[1] if lowest else "", extra[1] if extra else ""


def older(version: str, lowest: str) -> bool:
    """Whether a version is before another, by its leading numbers."""
    return _numbers(version) < _numbers(lowest)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _versions() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield Finding("system", "ok", f"{platform.system()} {platform.machine()}")
    try:
        yield Finding(DISTRIBUTION, "ok", metadata.version(DISTRIBUTION))
    except metadata.PackageNotFoundError:
        yield Finding(DISTRIBUTION, "missing", "not installed", "make setup")


def _packages() -> Iterator[Finding]:
    """Every needed package by itself, and every extra as a whole."""
    try:
        requirements = _requirements(metadata.requires(DISTRIBUTION) or [])
    except metadata.PackageNotFoundError:
        return
    for name, lowest, extra in requirements:
        if not extra:
            found, usable = _installed(name, lowest)
            yield Finding(name, "ok" if usable else "missing", found, "" if usable else "make setup")
    for extra in dict.fromkeys(extra for _, _, extra in requirements if extra):
        parts = [(name, *_installed(name, lowest)) for name, lowest, its in requirements if its == extra]
        lacking = [f"{name} {found}" for name, found, usable in parts if not usable]
        yield Finding(
            subject=f"extra {extra!r}",
            state="optional" if lacking else "ok",
            found=", ".join(lacking or [f"{name} {found}" for name, found, _ in parts]),
            advice=f".venv/bin/python -m pip install -e '.[{extra}]'" if lacking else "",
        )


def _requirements(written: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, lowest version and extra of all packages; an extra that asks for others of ours has theirs too."""
    found = [needed(requirement) for requirement in written]
    others: dict[str, list[str]] = {}
    for requirement, (name, _, extra) in zip(written, found, strict=True):
        if name == DISTRIBUTION:
            others.setdefault(extra, []).extend(_asked_extras(requirement))
    found += [
        (name, lowest, extra)
        for extra, asked in others.items()
        for name, lowest, its in list(found)
        if its in _with_their_own(asked, others)
    ]
    return [one for one in dict.fromkeys(found) if one[0] != DISTRIBUTION]


def _asked_extras(requirement: str) -> list[str]:
    """Extras in the brackets of a requirement such as `chunksearch[study,ray]; extra == "dev"`."""
    brackets = re.match(r"[A-Za-z0-9._-]+\s*\[([^\]]*)\]", requirement)
    return [name.strip() for name in brackets[1].split(",")] if brackets else []


def _with_their_own(asked: list[str], others: dict[str, list[str]]) -> set[str]:
    """Extras, and those that they ask for in turn."""
    found: set[str] = set()
    waiting = list(asked)
    while waiting:
        extra = waiting.pop()
        if extra not in found:
            found.add(extra)
            waiting += others.get(extra, [])
    return found


def _installed(name: str, lowest: str) -> tuple[str, bool]:
    """What is there of a package, in words, and whether it is new enough."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed", False
    if older(version, lowest):
        return f"{version}, older than {lowest}", False
    return version, True


def _weights() -> Iterator[Finding]:
    """Opened, not only seen: a download cut short, or a pointer in the place of a large file, has the right name."""
    for package, what, names in (
        ("engine", "voice", ("model.safetensors", "config.json")),
        ("codec", "codec", ("model.safetensors", "config.json")),
        ("scorers", "listener", ("listener.safetensors",)),
    ):
        folder = Path(str(resources.files(package))) / "builtin"
        faults = [fault for fault in map(_fault, (folder / name for name in names)) if fault]
        if faults:
            found = f"{'; '.join(faults)} in {folder}"
            yield Finding(f"built-in {what}", "missing", found, "install again, or restore it with git")
        else:
            size = (folder / names[0]).stat().st_size / 1e6
            yield Finding(f"built-in {what}", "ok", f"{size:.1f} MB in {folder}")


def _fault(path: Path) -> str:
    """What is wrong with a file of weights or its configuration; empty when it can be read."""
    if not path.is_file():
        return f"no {path.name}"
    try:
        if path.suffix == ".json":
            json.loads(path.read_text("utf-8"))
        else:
            with safe_open(path, "pt"):
                pass  # the header is checked against the file's size
    except (OSError, ValueError, SafetensorError) as error:
        return f"{path.name} cannot be read ({error})"
    return ""


def _devices() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS")
    threads = f"{torch.get_num_threads()} torch threads on {cores} cores" + (
        f" (OMP_NUM_THREADS={limit})" if limit else ""
    )
    yield Finding("CPU", "ok", threads)
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            yield Finding(f"cuda:{index}", "ok", f"{device.name}, {device.total_memory / 2**30:.0f} GiB")
    else:
        build = torch.version.cuda
        reason = f"torch is built for CUDA {build}, but no device answers" if build else "torch is built for CPUs only"
        yield Finding("GPU", "optional", reason, "none is needed for the built-in voice")


def _player() -> Finding:
    names = [player.name for player in installed_players()]
    if names:
        return Finding("player", "ok", ", ".join(names))
    known = ", ".join(player.name for player in PLAYERS)
    return Finding("player", "optional", "none found", f"for --play, install one of {known}")
