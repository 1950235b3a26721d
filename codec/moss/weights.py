"""Fills a codec network from a folder's safetensors files, one or several with an index, mapped into memory.

Knows the spellings of the public checkpoints: the first version's names, and both forms of weight normalisation, which
is multiplied out. Weights are data here: no code from a checkpoint is run. It does not know what a tensor is for.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from codec.moss.fields import MossCodecError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = ("F16", "BF16", "F32")
_AGAIN = "download the codec again"
_OTHER_CHECKPOINT = "config.json and weights belong to different codecs, download both again"
_GAIN, _DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"
_SPELLINGS = (
    (".self_attn.in_projs.0.", ".self_attn.in_proj."),
    (".self_attn.out_projs.0.", ".self_attn.out_proj."),
    (".linear1.", ".ffn.0."),
    (".linear2.", ".ffn.2."),
    (".weight_g", _GAIN),
    (".weight_v", _DIRECTION),
)


def read_weights(network: nn.Module, folder: Path) -> dict[str, Tensor]:
    """Tensors for all parameters of `network` (which may be on the meta device), as stored, on the CPU.

    Nothing is read before all names and shapes are known to fit. Tensors stay mapped to their files until used.

    Raises:
        MossCodecError: a file is missing or truncated, or a tensor is missing, of another shape, or one too many.
    """
    with _StoredTensors(folder) as stored:
        expected = {name: list(parameter.shape) for name, parameter in network.state_dict().items()}
        parts = {name: _parts(stored, name, shape) for name, shape in expected.items()}
        wanted = {part for pieces in parts.values() for part in pieces}
        for name, pieces in parts.items():
            for part, shape in pieces.items():
                stored.check(part, shape, name)
        surplus = [name for name in stored.names if name not in wanted]
        if surplus:
            where = stored.where(surplus[0])
            raise MossCodecError(f"{where} has no place in the network of config.json: {_OTHER_CHECKPOINT}")
        return {name: _weight([stored.read(part) for part in pieces]) for name, pieces in parts.items()}


def _parts(stored: _StoredTensors, name: str, shape: list[int]) -> dict[str, list[int]]:
    """What a parameter is stored as: names and shapes. A weight-normed one is a gain and a direction."""
    stem = name.removesuffix(".weight")
    if name in stored.names or not (stem + _GAIN in stored.names or stem + _DIRECTION in stored.names):
        return {name: shape}
    return {stem + _GAIN: [shape[0], 1, 1], stem + _DIRECTION: [*shape, 1]}


def _weight(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    gain, direction = (part.float()[..., 0] for part in parts)
    weight: Tensor = gain * direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    return weight


class _StoredTensors:
    """The tensors of a folder under their newest public names, opened together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index = folder / INDEX
        self._open = ExitStack()
        self._tensors: dict[str, tuple[Path, Any, str]] = {}

    def __enter__(self) -> Self:
        for path in self._files():
            try:
                file = self._open.enter_context(safe_open(path, framework="pt"))
            except FileNotFoundError:
                raise MossCodecError(f"{path} does not exist: {_cure(path.parent)}") from None
            except (SafetensorError, OSError) as error:
                raise MossCodecError(f"{path} is truncated or not a safetensors file ({error}): {_AGAIN}") from None
            self._tensors |= {_newest_name(name): (path, file, name) for name in file.keys()}  # noqa: SIM118
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def names(self) -> dict[str, tuple[Path, Any, str]]:
        """All names, as keys."""
        return self._tensors

    def where(self, name: str) -> str:
        """File and stored name of a tensor, for messages."""
        path, _, stored = self._tensors[name]
        return f"{path}: tensor {stored}"

    def check(self, name: str, shape: list[int], parameter: str) -> None:
        """Raise where a tensor is missing, of another shape, or not of floats."""
        if name not in self._tensors:
            path = self._index if self._index.exists() else self._folder / WEIGHTS
            raise MossCodecError(
                f"{path}: tensor {name} of shape {shape} for {parameter} is missing: {_AGAIN}, config.json too"
            )
        _, file, stored = self._tensors[name]
        part = file.get_slice(stored)
        if list(part.get_shape()) != shape:
            raise MossCodecError(
                f"{self.where(name)} has shape {list(part.get_shape())}, config.json asks for {shape}: "
                f"{_OTHER_CHECKPOINT}"
            )
        if part.get_dtype() not in _FLOATS:
            raise MossCodecError(f"{self.where(name)} holds {part.get_dtype()}, not {' or '.join(_FLOATS)}: {_AGAIN}")

    def read(self, name: str) -> Tensor:
        _, file, stored = self._tensors[name]
        tensor: Tensor = file.get_tensor(stored)
        return tensor

    def _files(self) -> list[Path]:
        if not self._index.exists():
            return [self._folder / WEIGHTS]
        try:
            shards = set(json.loads(self._index.read_text(encoding="utf-8"))["weight_map"].values())
            return [self._folder / shard for shard in sorted(shards)]
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise MossCodecError(f"{self._index} has no readable weight_map ({error!r}): {_AGAIN}") from None


def _cure(folder: Path) -> str:
    pickles = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind))
    return f"{pickles[0]} is pickled and not read, get the codec as safetensors" if pickles else _AGAIN


def _newest_name(name: str) -> str:
    for old, new in _SPELLINGS:
        name = name.replace(old, new)
    return name
