"""Reads the weights of a MOSS-TTS-Nano folder: safetensors, or the `pytorch_model.bin` of the release.

A `.bin` file is a pickle: it is opened by torch's reader that builds tensors and nothing else, and mapped. No code from
a checkpoint is run. It does not know what the weights are used for.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from codec.checkpoints.errors import DOWNLOAD, CheckpointError
from codec.checkpoints.tensors import INDEX, WEIGHTS, StoredTensor, check_names, open_tensors
from engine.moss.checkpoint import read_tied
from engine.nano.config import NanoConfig
from engine.nano.network import NanoNetwork

RELEASED = "pytorch_model.bin"
_UNUSED = ("local_transformer.wte.weight",)  # the class that the released depth decoder derives from has one
_DTYPES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}


def load_network(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    *,
    spoken_books: int | None = None,
) -> NanoNetwork:
    """The network of a checkpoint folder, frozen, in `dtype` on `device`, speaking the first `spoken_books` books.

    Raises:
        ConfigError: `config.json` is missing or asks for something that is not implemented.
        CheckpointError: a weight file is missing, truncated, not finite, or disagrees with `config.json`.
    """
    config = NanoConfig.load(folder / "config.json")
    with torch.device("meta"):
        network = NanoNetwork(config, spoken_books)
    expected = {name: list(weight.shape) for name, weight in network.state_dict().items()}
    heads = dict(tied_names(config)) if config.tied else {}
    twins = {**heads, **{embedding: head for head, embedding in heads.items()}}
    with ExitStack() as open_files:
        stored = _open(folder, open_files)
        for name in _UNUSED:
            stored.pop(name, None)
        check_names(folder, expected, stored, twins)
        weights = {
            name: read_tied(folder, name, expected[name], stored, twins).to(device=device, dtype=dtype)
            for name in expected
            if name not in heads
        }
    network.load_state_dict(weights | {head: weights[embedding] for head, embedding in heads.items()}, assign=True)
    network.tie()
    return network.requires_grad_(False).eval()


def tied_names(config: NanoConfig) -> list[tuple[str, str]]:
    """(head, embedding) names that hold one tensor; a file may store both or either."""
    audio = [(f"audio_lm_heads.{book}.weight", f"audio_embeddings.{book}.weight") for book in range(config.books)]
    return [("text_lm_head.weight", "transformer.wte.weight"), *audio]


def _open(folder: Path, open_files: ExitStack) -> dict[str, StoredTensor]:
    if (folder / WEIGHTS).exists() or (folder / INDEX).exists():
        return open_tensors(folder, open_files)
    path = folder / RELEASED
    if not path.exists():
        raise CheckpointError(f"{folder} holds neither {WEIGHTS} nor {RELEASED}: {DOWNLOAD}")
    file = _UnpickledFile(path)
    return {name: StoredTensor(file, path, name) for name in file.tensors}


class _UnpickledFile:
    """The tensors of a `.bin` file behind the calls that `StoredTensor` makes on an open safetensors file."""

    def __init__(self, path: Path) -> None:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (RuntimeError, EOFError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise CheckpointError(f"{path} is truncated or no zipped torch file ({reason}): {DOWNLOAD}") from None
        except pickle.UnpicklingError:
            raise CheckpointError(
                f"{path} holds more than tensors, which could run code and is not read: {DOWNLOAD}"
            ) from None
        if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
            raise CheckpointError(f"{path} is no flat dictionary of tensors: save the model's state_dict alone")
        self.tensors: dict[str, Tensor] = {str(name): tensor.detach() for name, tensor in found.items()}

    def get_tensor(self, name: str) -> Tensor:
        return self.tensors[name]

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self.tensors[name])


class _Slice:
    """Shape and dtype of a tensor, spelled as safetensors spells them."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return _DTYPES.get(self._tensor.dtype, str(self._tensor.dtype))
