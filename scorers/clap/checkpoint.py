"""Checkpoints of LAION's CLAP code: read without running what they hold, and fitted to a network strictly.

Knows no architecture. Files differ in ways that mean nothing: the prefix that training on several GPUs left on every
name, and a table of positions that newer releases of transformers make anew and no longer store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PREFIX = "module."
REMADE = "text_branch.embeddings.position_ids"
FUSION = (".fusion_model.", ".mel_conv2d.", ".mel_conv1d.")
"""Parts of names that only networks with feature fusion have."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights stored at `path` under the names of a bare network, on the CPU.

    Beside tensors a checkpoint may hold NumPy numbers (its best metrics); it may hold nothing else that needs code.

    Raises:
        ValueError: the file cannot be read, wants other code to be run, or holds something that is no weight.
    """
    try:
        with torch.serialization.safe_globals(_numpy_numbers()):
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
        raise ValueError(f"model: {str(path)!r} cannot be read as a checkpoint: {_cause(error)}") from error
    weights = stored.get("state_dict", stored) if isinstance(stored, Mapping) else None
    if not isinstance(weights, Mapping) or not weights:
        raise ValueError(f"model: {str(path)!r} holds no 'state_dict' of weights by name")
    for name, value in weights.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ValueError(f"model: {str(path)!r}: {name!r} is a {type(value).__name__}; weights are needed")
    return {name.removeprefix(PREFIX): value for name, value in weights.items()}


def fit(network: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load `weights` into the network: all of them, and nothing else.

    Raises:
        ValueError: names the file and the first weight that is missing, unknown, of another shape or not finite.
    """
    wanted = network.state_dict()
    given = {name: value for name, value in weights.items() if name in wanted or name != REMADE}
    for name in given:
        if name not in wanted:
            fused = any(part in name for part in FUSION)
            why = "belongs to feature fusion, which is not supported; take a checkpoint without" if fused else "unknown"
            raise ValueError(f"model: {str(path)!r}: {name!r}: {why}")
    for name, value in wanted.items():
        if name not in given:
            raise ValueError(f"model: {str(path)!r}: {name!r} is missing")
        if given[name].shape != value.shape:
            shapes = f"{list(given[name].shape)}, but {list(value.shape)} is needed"
            cure = "; text_model must be the folder of the same size" if name.startswith("text_branch.") else ""
            raise ValueError(f"model: {str(path)!r}: {name!r} has shape {shapes}{cure}")
        if not bool(torch.isfinite(given[name]).all()):
            raise ValueError(f"model: {str(path)!r}: {name!r} holds values that are not finite")
    network.load_state_dict(given)


def _cause(error: Exception) -> str:
    """torch answers what is not allowed with the advice to load it all the same: not repeated here."""
    forbidden = re.search(r"GLOBAL (\S+)", str(error))
    if forbidden:
        return f"it holds {forbidden[1]}, which could be made to run code; tensors and NumPy numbers are allowed"
    return "it is damaged, or of another format" if isinstance(error, UnpicklingError) else str(error)


def _numpy_numbers() -> list[Any]:
    """What unpickling NumPy numbers needs, under the names that both NumPy 1 and NumPy 2 write."""
    scalar = np.float64(0).__reduce__()[0]
    names = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    return [*names, np.dtype, *(type(np.dtype(kind)) for kind in (np.float32, np.float64, np.int64))]
