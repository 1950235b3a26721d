"""Compares our runtimes with golden bundles: inputs and outputs that a reference implementation produced.

Each kind of bundle has one module here. This package does not know how results are shown: it returns records.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.verify.compare import Check
from experiments.verify.moss import verify_moss
from experiments.verify.moss_codec import verify_moss_codec
from experiments.verify.moss_nano import verify_moss_nano
from experiments.verify.moss_prompt import verify_moss_prompt
from experiments.verify.voiceclap import verify_voiceclap

KINDS: dict[str, Callable[[Path], list[Check]]] = {
    "moss": verify_moss,
    "moss-codec": verify_moss_codec,
    "moss-nano": verify_moss_nano,
    "moss-prompt": verify_moss_prompt,
    "voiceclap": verify_voiceclap,
}


def verify(kind: str, folder: Path) -> list[Check]:
    """All checks of a bundle folder, in order; a check that failed is a record, not an exception.

    Raises:
        ValueError: the kind is unknown, or the folder's config, weights or golden tensors cannot be read.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is unknown; known are {', '.join(sorted(KINDS))}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the folder that holds config.json and golden.safetensors")
    return KINDS[kind](folder)


__all__ = ["KINDS", "Check", "verify"]
