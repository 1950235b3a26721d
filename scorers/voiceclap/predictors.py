"""Small networks that read one property of a voice from its embedding, and the files that LAION stores them in.

    z = (e - mu) / sd,   y = f2(GELU(f1 z))        (exact GELU; sd is at least 1e-6)

A `.pt` file is a pickle of `state_dict` (`f1.weight`, `f1.bias`, `f2.weight`, `f2.bias`), NumPy arrays `mu` and `sd`,
and `levels`, the names of the steps of the scale. A `.safetensors` file has the six tensors under the same names, and
optionally a JSON list of names as `levels` in its metadata. Sizes follow from the tensors; one output is a regression,
several are a classification. It does not know how embeddings are made, nor how good a prediction is.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from codec.checkpoints.tensors import WEIGHTS, open_file, read_metadata

KINDS = (".pt", ".safetensors")
_LAYERS = ("f1.weight", "f1.bias", "f2.weight", "f2.bias")
_PARTS = ("mu", "sd", *_LAYERS)
_SMALLEST_SPREAD = 1e-6
# LAION's file names of the two predictors that rewards are made of, and where their scales end.
_NAMES = {
    "genuineness_head": "genuineness",
    "genu_commercial_best": "genuineness",
    "blend_head_commercial": "blend",
    "blend_head": "blend",
}
_ENDS = {"genuineness": 6.0, "blend": 10.0}


@dataclass(frozen=True)
class Predictor:
    """One property of a voice.

    Attributes:
        name: of the term, from the file's name.
        tensors: `mu` and `sd` [D], `f1.weight` [H, D], `f1.bias` [H], `f2.weight` [K, H], `f2.bias` [K]; float32.
        end: where the scale of a regression ends; it begins at 0. None is no scale: the value is not clamped.
        levels: names of the K classes of a classification.
    """

    name: str
    tensors: Mapping[str, Tensor]
    end: float | None
    levels: tuple[str, ...]

    @property
    def classes(self) -> int:
        """Of a classification; 1 is a regression."""
        return len(self.tensors["f2.bias"])

    @property
    def meaning(self) -> str:
        """What the value is, for people."""
        if self.classes > 1:
            return f"most probable of {self.classes} classes, from 0"
        return "on no fixed scale" if self.end is None else f"0 to {self.end:g}"

    def outputs(self, embedding: Tensor) -> Tensor:
        """Float32 [..., D] -> [..., K], neither clamped nor normalised."""
        part = self.tensors
        z = (embedding - part["mu"]) / part["sd"].clamp(min=_SMALLEST_SPREAD)
        hidden = F.gelu(F.linear(z, part["f1.weight"], part["f1.bias"]))
        return F.linear(hidden, part["f2.weight"], part["f2.bias"])

    def predict(self, embedding: Tensor) -> tuple[float, str]:
        """Value of one embedding [D], and words for it where it is a class: its name and probability."""
        outputs = self.outputs(embedding)
        if self.classes == 1:
            value = float(outputs)
            return (value if self.end is None else min(max(value, 0.0), self.end)), ""
        probability, level = outputs.softmax(0).max(0)
        return float(level), f"{self.levels[int(level)]} ({float(probability):.2f})"


def load_predictors(place: str | Path | Sequence[str | Path], width: int) -> list[Predictor]:
    """Those in a folder and the folders in it, or in a list of files; genuineness and blend first, then by name.

    Raises:
        CheckpointError: a file is missing, damaged, not in the format, or was made for embeddings of another width.
    """
    paths = _files(place)
    names = [_NAMES.get(path.stem, path.stem) for path in paths]
    # LAION keeps a regression and a classification of one dimension under one file name, in two folders.
    names = [
        name if names.count(name) == 1 else f"{name}_{path.parent.name}"
        for name, path in zip(names, paths, strict=True)
    ]
    for name, path in zip(names, paths, strict=True):
        if names.count(name) > 1 or name == "style":
            raise CheckpointError(f"{path}: {name!r} names more than one term: rename the file")
    found = [_read(path, name, width) for name, path in zip(names, paths, strict=True)]
    return sorted(
        found, key=lambda predictor: (predictor.name not in _ENDS, predictor.name != "genuineness", predictor.name)
    )


def _files(place: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(place, (str, Path)):
        return [Path(path).expanduser() for path in place]
    folder = Path(place).expanduser()
    if folder.suffix in KINDS:
        return [folder]
    # LAION's folder of dimensions has the model in it.
    paths = sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.name != WEIGHTS)
    if not paths:
        raise CheckpointError(
            f"heads: {place} has no {' or '.join(KINDS)} file in it: give a folder that has, or files"
        )
    return paths


def _read(path: Path, name: str, width: int) -> Predictor:
    if path.suffix not in KINDS:
        raise CheckpointError(f"heads: {path} is no {' or '.join(KINDS)} file")
    tensors, levels = _read_pickle(path) if path.suffix == ".pt" else _read_safetensors(path)
    tensors = _checked(path, tensors, width)
    classes = len(tensors["f2.bias"])
    if classes > 1 and levels and len(levels) != classes:
        raise CheckpointError(f"{path}: levels has {len(levels)} names, f2.bias {classes} values: both are the classes")
    end = float(len(levels) - 1) if len(levels) > 1 else _ENDS.get(name)
    return Predictor(name, tensors, end, levels or tuple(str(level) for level in range(classes)))


def _checked(path: Path, tensors: dict[str, Tensor], width: int) -> dict[str, Tensor]:
    missing = [name for name in _PARTS if name not in tensors]
    if missing:
        raise CheckpointError(
            f"{path}: {missing[0]} is missing; a predictor has mu, sd, {', '.join(_LAYERS)}: this is another file"
        )
    # Some of the files keep the statistics as one row.
    tensors |= {name: tensors[name].flatten() for name in ("mu", "sd")}
    hidden, classes = len(tensors["f1.bias"].flatten()), len(tensors["f2.bias"].flatten())
    shapes = {"mu": [width], "sd": [width], "f1.weight": [hidden, width], "f1.bias": [hidden]}
    shapes |= {"f2.weight": [classes, hidden], "f2.bias": [classes]}
    for name, shape in shapes.items():
        found = tensors[name]
        if list(found.shape) != shape:
            raise CheckpointError(
                f"{path}: {name} has shape {list(found.shape)}; {shape} is needed with embeddings of {width}: it was "
                "trained on another model"
            )
        if not bool(found.isfinite().all()):
            raise CheckpointError(f"{path}: {name} holds values that are not finite: download it again")
    return {name: tensors[name] for name in shapes}


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    with ExitStack() as open_files:
        stored = open_file(path, open_files)
        tensors = {name: stored[name].read(stored[name].shape).float() for name in _PARTS if name in stored}
    try:
        return tensors, _levels(path, json.loads(read_metadata(path).get("levels", "null")))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: levels in its metadata is no JSON ({error})") from None


def _read_pickle(path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Only arrays of float32 and float64 may be in the pickle beside what torch allows: it cannot run code."""
    rebuild = np.empty(0).__reduce__()[0]
    allowed: list[Any] = [
        np.ndarray,
        np.dtype,
        np.dtypes.Float32DType,
        np.dtypes.Float64DType,
        (rebuild, "numpy._core.multiarray._reconstruct"),
        (rebuild, "numpy.core.multiarray._reconstruct"),  # its name before NumPy 2
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"heads: {path} does not exist") from None
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} asks for more than tensors and NumPy arrays and is not opened, since it could run code: convert "
            f"it to safetensors with a program that you trust ({_reason(error)})"
        ) from None
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        raise CheckpointError(f"{path} is truncated or no torch file ({_reason(error)}): download it again") from None
    layers = stored.get("state_dict") if isinstance(stored, dict) else None
    if not isinstance(layers, dict):
        raise CheckpointError(f"{path}: state_dict is missing: this is another kind of file")
    parts = {**layers, "mu": stored.get("mu"), "sd": stored.get("sd")}
    arrays = {name: part for name, part in parts.items() if isinstance(part, (Tensor, np.ndarray))}
    tensors = {name: torch.as_tensor(array).float() for name, array in arrays.items()}
    return tensors, _levels(path, stored.get("levels"))


def _levels(path: Path, stored: Any) -> tuple[str, ...]:
    """Names of the steps of a scale from 0 up, whether stored as a list, by number, or as their count."""
    if stored is None:
        return ()
    if type(stored) is int and stored > 0:
        return tuple(str(level) for level in range(stored))
    if isinstance(stored, dict):
        keys = sorted(stored, key=lambda key: int(key) if str(key).isdigit() else -1)
        return tuple(str(stored[key]) for key in keys)
    if isinstance(stored, list):
        return tuple(map(str, stored))
    raise CheckpointError(f"{path}: levels is {stored!r}; a list of names, names by number, or a count is needed")


def _reason(error: Exception) -> str:
    """The first line that says something, of the many that torch writes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Unsupported" in line or "GLOBAL" in line), lines[0] if lines else "empty")
