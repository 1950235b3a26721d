"""The safetensors files of a checkpoint folder: one file, or shards with an index; every tensor checked as it is read.

Tensors are memory-mapped: what a caller does not convert takes no memory of its own. It does not know which tensors a
network needs, nor what they are for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from codec.checkpoints.errors import DOWNLOAD, CheckpointError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_OTHER_CHECKPOINT = "the two files belong to different checkpoints, download both again"
_FLOATS = ("F16", "BF16", "F32", "F64")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class StoredTensor:
    """One tensor of an open file, checked before it is read."""

    def __init__(self, file: Any, path: Path, name: str) -> None:
        self._file, self.path, self.name = file, path, name

    @property
    def shape(self) -> list[int]:
        """As the file's header says; nothing is read."""
        return list(self._file.get_slice(self.name).get_shape())

    def check(self, shape: Sequence[int]) -> None:
        """Raise `CheckpointError` unless the header promises floats of this shape."""
        found, kind = self.shape, self._file.get_slice(self.name).get_dtype()
        if found != list(shape):
            raise CheckpointError(
                f"{self.path}: {self.name} has shape {found}, config.json asks for {list(shape)}: {_OTHER_CHECKPOINT}"
            )
        if kind not in _FLOATS:
            raise CheckpointError(
                f"{self.path}: {self.name} is stored as {kind}; allowed are {', '.join(_FLOATS)}: {DOWNLOAD}"
            )

    def mapped(self) -> Tensor:
        """The tensor in the file's dtype, as it is: no value has been looked at."""
        tensor: Tensor = self._file.get_tensor(self.name)
        return tensor

    def read(self, shape: Sequence[int]) -> Tensor:
        """The tensor, mapped; raises `CheckpointError` unless it is finite floats of this shape."""
        self.check(shape)
        tensor = self.mapped()
        if not finite(tensor):
            raise CheckpointError(f"{self.path}: {self.name} holds values that are not finite: {DOWNLOAD}")
        return tensor


def finite(tensor: Tensor) -> bool:
    """Whether all values are numbers. The extremes are NaN or infinite if anything is; a mask would take memory."""
    return not tensor.numel() or all(bool(end.isfinite()) for end in tensor.aminmax())


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
    file = _opened(path, open_files)
    return {name: StoredTensor(file, path, name) for name in file.keys()}  # noqa: SIM118


def read_metadata(path: Path) -> dict[str, str]:
    """The texts that a safetensors file keeps beside its tensors."""
    with ExitStack() as open_files:
        return dict(_opened(path, open_files).metadata() or {})


def check_names(
    folder: Path,
    expected: Mapping[str, Sequence[int]],
    stored: Mapping[str, StoredTensor],
    twins: Mapping[str, str] | None = None,
) -> None:
    """Raise `CheckpointError` unless what is expected is stored, under its own name or its twin's, and no more.

    Args:
        expected: shapes by name, for the message.
        twins: other names that a tensor may have in their place.
    """
    twins = twins or {}
    missing = [name for name in expected if name not in stored and twins.get(name) not in stored]
    if missing:
        raise CheckpointError(
            f"{folder}: tensor {missing[0]} of shape {list(expected[missing[0]])} is missing{_others(missing)}: "
            f"{DOWNLOAD}, every shard of it and config.json too"
        )
    surplus = [tensor for name, tensor in stored.items() if name not in expected]
    if surplus:
        raise CheckpointError(
            f"{surplus[0].path}: tensor {surplus[0].name} has no place in the network that config.json describes"
            f"{_others(surplus)}: {_OTHER_CHECKPOINT}"
        )


def _others(found: Sequence[object]) -> str:
    """How many names an error message does not show."""
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


def _opened(path: Path, open_files: ExitStack) -> Any:
    try:
        return open_files.enter_context(safe_open(path, framework="pt"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: {_cure(path.parent)}") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is truncated or not a safetensors file ({error}): {DOWNLOAD}") from None


def _weight_files(folder: Path) -> Iterator[Path]:
    index = folder / INDEX
    if not index.exists():
        yield folder / WEIGHTS
        return
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
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
