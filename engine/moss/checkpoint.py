"""Reads and writes checkpoint folders: `config.json` beside `model.safetensors` (or shards with an index).

Weights are data here: no code from a checkpoint is run. It does not know what the weights are used for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.moss.config import MossConfig
from engine.moss.network import MossNetwork

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = ("F16", "BF16", "F32")
_DOWNLOAD = "download the checkpoint again"


class CheckpointError(ValueError):
    """A weight file is missing, damaged, or does not belong to its `config.json`."""


def load_network(folder: Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> MossNetwork:
    """The network of a checkpoint folder, frozen, in `dtype` on `device`.

    Raises:
        ConfigError: `config.json` is missing or asks for something that is not implemented.
        CheckpointError: a weight file is missing, truncated, not finite, or disagrees with `config.json`.
    """
    config = MossConfig.load(folder / "config.json")
    with torch.device("meta"):
        network = MossNetwork(config)
    expected, tied = network.state_dict(), tied_names(config)
    with ExitStack() as open_files:
        stored = _open_tensors(folder, open_files)
        _check_names(folder, tied, expected, stored)
        weights = {name: stored[name].read(expected[name].shape) for name in stored}
    for head, embedding in tied:
        _merge_tied(weights, head, embedding, folder)
    weights = {name: weight.to(device=device, dtype=dtype) for name, weight in weights.items()}
    weights |= {head: weights[embedding] for head, embedding in tied}
    network.load_state_dict(weights, assign=True)
    network.tie()
    return network.requires_grad_(False).eval()


def save_network(network: MossNetwork, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write `config.json` and `model.safetensors`, one copy of every tied pair; `dtype` None keeps the weights' own."""
    folder.mkdir(parents=True, exist_ok=True)
    heads = {head for head, _ in tied_names(network.config)}
    weights = {
        name: weight.detach().to(device="cpu", dtype=dtype or weight.dtype).contiguous()
        for name, weight in network.state_dict().items()
        if name not in heads
    }
    # The weights are renamed into place last, so that an interrupted save leaves the previous checkpoint readable.
    partial = folder / f"{WEIGHTS}.partial"
    save_file(weights, partial, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(network.config.to_json(), indent=2) + "\n", encoding="utf-8")
    partial.replace(folder / WEIGHTS)


def tied_names(config: MossConfig) -> list[tuple[str, str]]:
    """(head, embedding) names that hold one tensor; a file may store both or either."""
    audio = [(f"audio_lm_heads.{book}.weight", f"audio_embeddings.{book}.weight") for book in range(config.books)]
    return [("text_lm_head.weight", "transformer.embed_tokens.weight"), *audio]


class _StoredTensor:
    """One tensor of an open file, checked before it is read."""

    def __init__(self, file: Any, path: Path, name: str) -> None:
        self._file, self._path, self._name = file, path, name

    def read(self, shape: torch.Size) -> Tensor:
        part = self._file.get_slice(self._name)
        found, kind = list(part.get_shape()), part.get_dtype()
        if found != list(shape):
            raise CheckpointError(
                f"{self._path}: {self._name} has shape {found}, config.json asks for {list(shape)}: "
                "the two files belong to different checkpoints"
            )
        if kind not in _FLOATS:
            raise CheckpointError(f"{self._path}: {self._name} is stored as {kind}; allowed are {', '.join(_FLOATS)}")
        tensor: Tensor = self._file.get_tensor(self._name)
        if not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{self._path}: {self._name} holds values that are not finite: {_DOWNLOAD}")
        return tensor


def _open_tensors(folder: Path, open_files: ExitStack) -> dict[str, _StoredTensor]:
    tensors: dict[str, _StoredTensor] = {}
    for path in _weight_files(folder):
        try:
            file = open_files.enter_context(safe_open(path, framework="pt"))
        except FileNotFoundError:
            raise CheckpointError(f"{path} does not exist: {_DOWNLOAD}") from None
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is truncated or not a safetensors file ({error}): {_DOWNLOAD}") from None
        tensors |= {name: _StoredTensor(file, path, name) for name in file.keys()}  # noqa: SIM118
    return tensors


def _weight_files(folder: Path) -> Iterator[Path]:
    index = folder / INDEX
    if not index.exists():
        yield folder / WEIGHTS
        return
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} has no readable weight_map ({error!r}): {_DOWNLOAD}") from None
    yield from (folder / shard for shard in shards)


def _check_names(
    folder: Path, tied: list[tuple[str, str]], expected: Mapping[str, Tensor], stored: Mapping[str, _StoredTensor]
) -> None:
    twin = dict(tied) | {embedding: head for head, embedding in tied}
    missing = [name for name in expected if name not in stored and twin.get(name) not in stored]
    if missing:
        raise CheckpointError(
            f"{folder}: tensor {missing[0]} of shape {list(expected[missing[0]].shape)} is missing"
            f"{_others(missing)}: {_DOWNLOAD}, every shard of it"
        )
    surplus = [name for name in stored if name not in expected]
    if surplus:
        raise CheckpointError(
            f"{folder}: tensor {surplus[0]}{_others(surplus)} has no place in the network that config.json describes: "
            "the two files belong to different checkpoints"
        )


def _others(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _merge_tied(weights: dict[str, Tensor], head: str, embedding: str, folder: Path) -> None:
    """Leave the pair's one tensor under the embedding's name."""
    if head in weights and embedding in weights and not torch.equal(weights[head], weights[embedding]):
        raise CheckpointError(
            f"{folder}: {head} and {embedding} differ, but config.json ties them: "
            "a fine-tuning run changed one copy only; merge it again with both"
        )
    tensor = weights.pop(head, None)
    if embedding not in weights:
        assert tensor is not None, embedding
        weights[embedding] = tensor
