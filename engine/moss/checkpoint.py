"""Reads and writes checkpoint folders: `config.json` beside its weights, heads tied in either form or apart.

Weights are data here: no code from a checkpoint is run. It does not know what the weights are used for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from codec.checkpoints.tensors import WEIGHTS, StoredTensor, check_names, open_tensors
from engine.moss.config import MossConfig
from engine.moss.lora import Adapter
from engine.moss.network import MossNetwork


def load_network(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    *,
    adapter: Adapter | None = None,
) -> MossNetwork:
    """The network of a checkpoint folder, frozen, in `dtype` on `device`, with an adapter merged into it if given.

    On a CPU, weights that are stored in `dtype` stay mapped to their file: rename a new file over it, never write into
    it. Where the adapter changes a head or the embedding that it is tied to, the other one stays as it was, and the
    network comes back untied.

    Raises:
        ConfigError: `config.json` is missing or asks for something that is not implemented.
        CheckpointError: a weight file is missing, truncated, not finite, or disagrees with `config.json`, or the
            adapter changes what the network does not have.
    """
    written = MossConfig.load(folder / "config.json")
    pairs = dict(tied_names(written))
    parted = {head for head, embedding in pairs.items() if adapter and adapter.changes(head, embedding)}
    with torch.device("meta"):
        network = MossNetwork(replace(written, tied=False) if parted else written)
    expected = {name: list(weight.shape) for name, weight in network.state_dict().items()}
    if adapter:
        adapter.check(expected)
    aliases = {head: embedding for head, embedding in pairs.items() if written.tied and head not in parted}
    weights: dict[str, Tensor] = {}
    with ExitStack() as open_files:
        stored = open_tensors(folder, open_files)
        twins = {**pairs, **{embedding: head for head, embedding in pairs.items()}} if written.tied else {}
        check_names(folder, expected, stored, twins)
        for name in expected.keys() - aliases.keys():
            weight = read_tied(folder, name, expected[name], stored, twins).to(device)
            weights[name] = (adapter.merged(name, weight) if adapter else weight).to(dtype)
    network.load_state_dict(weights | {head: weights[embedding] for head, embedding in aliases.items()}, assign=True)
    network.tie()
    return network.requires_grad_(False).eval()


def save_network(network: MossNetwork, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write `config.json` and `model.safetensors`, one copy of every tied pair; `dtype` None keeps the weights' own."""
    folder.mkdir(parents=True, exist_ok=True)
    skipped: Collection[str] = dict(tied_names(network.config)) if network.config.tied else ()
    weights = {
        # A clone, since heads of an untied network may still share memory with their embeddings.
        name: weight.detach().to(device="cpu", dtype=dtype or weight.dtype).clone(memory_format=torch.contiguous_format)
        for name, weight in network.state_dict().items()
        if name not in skipped
    }
    # The weights are renamed into place last, so that an interrupted save leaves the previous checkpoint readable.
    partial = folder / f"{WEIGHTS}.partial"
    save_file(weights, partial, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(network.config.to_json(), indent=2) + "\n", encoding="utf-8")
    partial.replace(folder / WEIGHTS)


def tied_names(config: MossConfig) -> list[tuple[str, str]]:
    """(head, embedding) names that hold one tensor where `config.tied`; a file may then store both or either."""
    audio = [(f"audio_lm_heads.{book}.weight", f"audio_embeddings.{book}.weight") for book in range(config.books)]
    return [("text_lm_head.weight", "transformer.embed_tokens.weight"), *audio]


def read_tied(
    folder: Path, name: str, shape: Sequence[int], stored: Mapping[str, StoredTensor], twins: Mapping[str, str]
) -> Tensor:
    """A tensor under its own name or its twin's; two copies of a tied one must be equal."""
    twin = twins.get(name, name)
    weight = stored[name if name in stored else twin].read(shape)
    if name in stored and twin in stored and not torch.equal(weight, stored[twin].read(shape)):
        raise CheckpointError(
            f"{folder}: {name} and {twin} differ, but config.json ties them: a fine-tuning run changed one copy only; "
            "set tie_word_embeddings to false to use both as they are"
        )
    return weight
