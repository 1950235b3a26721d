"""The safetensors files of a checkpoint folder: one file, or shards with an index; every tensor checked as it is read.

Tensors are memory-mapped: what a caller does not convert takes no memory of its own. It does not know which tensors a
network needs, nor what they are for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DOWNLOAD = "download the checkpoint again"
_FLOATS = ("F16", "BF16", "F32")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class CheckpointError(ValueError):
    """A weight file is missing, damaged, or does not belong to its `config.json`."""


class StoredTensor:
    """One tensor of an open file, checked before it is read."""

    def __init__(self, file: Any, path: Path, name: str) -> None:
        self._file, self.path, self.name = file, path, name

    @property
    def shape(self) -> list[int]:
        """As the file's header says; nothing is read."""
        return list(self._file.get_slice(self.name).get_shape())

    def read(self, shape: torch.Size | list[int]) -> Tensor:
        """The tensor, mapped, in the file's dtype; raises `CheckpointError` unless it is floats of this shape."""
        part = self._file.get_slice(self.name)
        found, kind = self.shape, part.get_dtype()
        if found != list(shape):
            raise CheckpointError(
                f"{self.path}: {self.name} has shape {found}, config.json asks for {list(shape)}: "
                "the two files belong to different checkpoints"
            )
        if kind not in _FLOATS:
            raise CheckpointError(f"{self.path}: {self.name} is stored as {kind}; allowed are {', '.join(_FLOATS)}")
        tensor: Tensor = self._file.get_tensor(self.name)
        # The extremes are NaN or infinite if anything is, and unlike a mask they take no memory.
        if tensor.numel() and not all(bool(end.isfinite()) for end in tensor.aminmax()):
            raise CheckpointError(f"{self.path}: {self.name} holds values that are not finite: {DOWNLOAD}")
        return tensor


def open_tensors(folder: Path, open_files: ExitStack) -> dict[str, StoredTensor]:
    """All tensors of the folder's weights by name, unread; the files are closed with `open_files`.

    Raises:
        CheckpointError: a file is missing, cut short or no safetensors file, or the index disagrees with the shards.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in _weight_files(folder):
        tensors |= open_file(path, open_files)
    return tensors


def open_file(path: Path, open_files: ExitStack) -> dict[str, StoredTensor]:
    """All tensors of one safetensors file by name, unread."""
    try:
        file = open_files.enter_context(safe_open(path, framework="pt"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: {_cure(path.parent)}") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is truncated or not a safetensors file ({error}): {DOWNLOAD}") from None
    return {name: StoredTensor(file, path, name) for name in file.keys()}  # noqa: SIM118


def others(names: list[str]) -> str:
    """How many names an error message does not show."""
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _weight_files(folder: Path) -> Iterator[Path]:
    index = folder / INDEX
    if not index.exists():
        yield folder / WEIGHTS
        return
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} has no readable weight_map ({error!r}): {DOWNLOAD}") from None
    yield from (folder / shard for shard in shards)


def _cure(folder: Path) -> str:
    pickles = sorted(path.name for kind in _PICKLES for path in folder.glob(kind))
    if not pickles:
        return DOWNLOAD
    return (
        f"the folder holds pickled weights instead ({pickles[0]}), which can run code and are not read; "
        "get the checkpoint as safetensors"
    )
