"""Changes to the weight files of a checkpoint folder, and a comparison. Knows no network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS = "model.safetensors"
Weights = dict[str, Tensor]


def rewrite(folder: Path, change: Callable[[Weights], object]) -> None:
    """Let `change` change the folder's weights in place."""
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS)


def scale(folder: Path, tensor: str, factor: float) -> None:
    """Multiply one tensor of the folder's weights."""
    rewrite(folder, lambda weights: weights.update({tensor: weights[tensor] * factor}))


def shard(folder: Path) -> None:
    """Deal the folder's weights out to `a.safetensors` and `b.safetensors`, with an index."""
    weights = load_file(folder / WEIGHTS)
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: weights[name] for name in part}, folder / file)
    (folder / WEIGHTS).unlink()
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))


def same(left: Weights, right: Weights) -> bool:
    """Whether all tensors are equal, bit for bit, under equal names."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
