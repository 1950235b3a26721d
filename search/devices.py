"""Where tensors are to live, checked before anything is loaded there. Knows nothing of what is loaded."""

from __future__ import annotations

import torch


def device_of(device: torch.device | str | None) -> torch.device:
    """The torch device of that name; None is the CPU.

    Raises:
        ValueError: torch knows no such device, or this machine does not have it.
    """
    try:
        found = torch.device(device or "cpu")
    except RuntimeError:
        raise ValueError(f"device: {device!r} is no torch device; give 'cpu' or 'cuda'") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ValueError(f"device: {str(found)!r} is not there; torch finds {count} CUDA devices; 'cpu' always works")
    if found.type not in ("cpu", "cuda"):
        try:
            torch.zeros(1, device=found).cpu()
        except (RuntimeError, NotImplementedError, AssertionError):
            raise ValueError(f"device: {str(found)!r} cannot be used here; 'cpu' always works") from None
    return found
