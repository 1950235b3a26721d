"""One comparison with a golden tensor, as a record. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

ABSOLUTE, RELATIVE = 1e-4, 1e-4


@dataclass(frozen=True)
class Check:
    """What came of one golden tensor.

    Attributes:
        name: of the tensor in the bundle.
        passed: integers are equal; floats differ by at most 1e-4 + 1e-4 * |golden|.
        largest: largest absolute difference of floats, or the number of unequal integers.
        compared: values that were compared; padding is not.
        detail: why it failed where the numbers alone do not say.
    """

    name: str
    passed: bool
    largest: float
    compared: int
    detail: str = ""


class Golden:
    """The golden tensors of a bundle; collects one check a tensor. A missing one raises `ValueError`."""

    def __init__(self, path: Path) -> None:
        try:
            self._tensors: Mapping[str, Tensor] = load_file(path)
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist: a bundle folder needs it beside config.json") from None
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{path} is truncated or not a safetensors file ({error}): copy the bundle again"
            ) from None
        self._path = path
        self.checks: list[Check] = []

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise ValueError(f"{self._path}: tensor {name} is missing: this is not a complete bundle of this kind")
        return self._tensors[name]

    def check(self, name: str, ours: Tensor, valid: Tensor | None = None) -> None:
        """Compare `ours` with the golden tensor where `valid` (a mask over the leading axes; None is everywhere)."""
        self.checks.append(compare(name, ours, self[name], valid))


def compare(name: str, ours: Tensor, golden: Tensor, valid: Tensor | None = None) -> Check:
    """The record of one comparison; shapes and infinities must be equal, and NaN never passes."""
    if ours.shape != golden.shape:
        return Check(name, False, float("inf"), 0, f"shape {list(ours.shape)}, golden {list(golden.shape)}")
    if valid is not None:
        ours, golden = ours[valid], golden[valid]
    if not golden.is_floating_point():
        unequal = int((ours != golden).sum())
        return Check(name, unequal == 0, float(unequal), golden.numel())
    ours, golden = ours.double(), golden.double()
    finite = golden.isfinite()
    if not torch.equal(ours[~finite], golden[~finite]):
        return Check(name, False, float("inf"), golden.numel(), "infinities in other places")
    difference = (ours[finite] - golden[finite]).abs()
    allowed = ABSOLUTE + RELATIVE * golden[finite].abs()
    largest = float(difference.max()) if difference.numel() else 0.0
    return Check(name, bool((difference <= allowed).all()), largest, golden.numel())
