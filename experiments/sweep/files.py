"""Files that are whole or not there: atomic writes, sums, and lines that survive a crash. Knows nothing of studies."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from search.record import json_ready


def plain_json(value: Any) -> bytes:
    """Indented JSON; numbers that it cannot hold become null."""
    return (json.dumps(json_ready(value), indent=1, ensure_ascii=False) + "\n").encode()


def json_lines(values: list[Any]) -> bytes:
    """One JSON object a line."""
    return "".join(json.dumps(json_ready(value), ensure_ascii=False) + "\n" for value in values).encode()


def partial_of(path: Path) -> Path:
    """Where a file is written before it is whole: a name that no other process has, on this machine or another."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that other processes see either as it was or complete."""
    partial = partial_of(path)
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write_once(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, complete from the first moment; else `FileExistsError`."""
    partial = partial_of(path)
    partial.write_bytes(content)
    try:
        os.link(partial, path)
    finally:
        partial.unlink()


def append_line(path: Path, value: Any) -> None:
    """Add one JSON line in a single write, so that lines of several processes do not mix.

    A line that an earlier process left unfinished is ended first; it can be read by nobody, and is skipped.
    """
    line = json_lines([value])
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a file of JSON lines; lines that cannot be read are left out."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []:
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def sum_of_parts(parts: Iterable[bytes]) -> str:
    """Sixteen hex digits of the SHA-256 of the parts' own sums, in their order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def sum_of(content: bytes) -> dict[str, Any]:
    """Length and SHA-256, as manifests hold them."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
