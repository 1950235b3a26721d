"""Fills a codec network from a folder's safetensors files, one or several with an index, mapped into memory.

Knows the spellings of the public checkpoints: the first version's names, and both forms of weight normalisation, which
is multiplied out. Weights are data here: no code from a checkpoint is run. It does not know what a tensor is for.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor, nn

from codec.checkpoints.tensors import check_names, open_tensors

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
        CheckpointError: a file is missing or truncated, or a tensor is missing, of another shape, or one too many.
    """
    with ExitStack() as open_files:
        stored = {_newest_name(name): tensor for name, tensor in open_tensors(folder, open_files).items()}
        parts = {name: _parts(stored, name, list(weight.shape)) for name, weight in network.state_dict().items()}
        wanted = {part: shape for pieces in parts.values() for part, shape in pieces.items()}
        check_names(folder, wanted, stored)
        for part, shape in wanted.items():
            stored[part].check(shape)
        return {name: _weight([stored[part].mapped() for part in pieces]) for name, pieces in parts.items()}


def _parts(stored: Collection[str], name: str, shape: list[int]) -> dict[str, list[int]]:
    """What a parameter is stored as: names and shapes. A weight-normed one is a gain and a direction."""
    stem = name.removesuffix(".weight")
    if name in stored or not (stem + _GAIN in stored or stem + _DIRECTION in stored):
        return {name: shape}
    return {stem + _GAIN: [shape[0], 1, 1], stem + _DIRECTION: [*shape, 1]}


def _weight(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    gain, direction = (part.float()[..., 0] for part in parts)
    weight: Tensor = gain * direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    return weight


def _newest_name(name: str) -> str:
    for old, new in _SPELLINGS:
        name = name.replace(old, new)
    return name
