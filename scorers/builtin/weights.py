"""Weights of the listener: read and write one safetensors file. Knows nothing of training or scoring."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from scorers.builtin.network import ListenerConfig, Recogniser

WEIGHTS = Path(__file__).parent / "listener.safetensors"


def save(network: Recogniser, path: Path, record: dict[str, str]) -> None:
    """Store the weights as float16, with the sizes and `record` (recipe, data, seed) in the file's metadata."""
    tensors = {name: value.detach().half().contiguous() for name, value in network.state_dict().items()}
    save_file(tensors, str(path), {"config": json.dumps(asdict(network.config)), **record})


def load(path: Path) -> Recogniser:
    """The network stored at `path`, float32, in evaluation mode.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no listener, or a tensor is missing, unknown, of the wrong shape or not finite; names it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the listener's weights are missing")
    try:
        with safe_open(str(path), framework="pt") as stored:
            sizes = (stored.metadata() or {}).get("config")
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path}: not a readable safetensors file ({error})") from error
    if sizes is None:
        raise ValueError(f"{path}: its metadata has no 'config'; it is no listener")
    network = Recogniser(_config_of(path, sizes))
    surplus = sorted(tensors.keys() - network.state_dict().keys())
    if surplus:
        raise ValueError(f"{path}: tensor {surplus[0]!r} is not known to this listener")
    for name, value in network.state_dict().items():
        if name not in tensors:
            raise ValueError(f"{path}: tensor {name!r} is missing")
        if tensors[name].shape != value.shape:
            raise ValueError(f"{path}: {name!r} has shape {list(tensors[name].shape)}; {list(value.shape)} is needed")
        if not bool(torch.isfinite(tensors[name]).all()):
            raise ValueError(f"{path}: {name!r} holds values that are not finite")
    network.load_state_dict({name: tensors[name].float() for name in network.state_dict()})
    return network.eval()


def _config_of(path: Path, sizes: str) -> ListenerConfig:
    try:
        read: Any = json.loads(sizes)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: 'config' in its metadata is not JSON ({error})") from error
    found = read if isinstance(read, dict) else {}
    for name in (part.name for part in fields(ListenerConfig)):
        value = found.get(name)
        numbers = value if name == "dilations" else [value]
        sound = isinstance(numbers, list) and all(type(number) is int and number > 0 for number in numbers)
        if not sound or not numbers:
            raise ValueError(f"{path}: {name!r} in its metadata's config is {value!r}; positive integers are needed")
    return ListenerConfig(found["width"], found["inner"], tuple(found["dilations"]))
