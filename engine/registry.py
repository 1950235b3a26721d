"""Names of engines, and the one function that turns a spec into an object. Knows nothing of how an engine works.

Engines are imported when they are asked for, so that none of them costs anything to those who use another.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from search.devices import device_of
from search.protocols import Engine

Maker = Callable[[torch.device, torch.dtype | None], Engine]
PlaceMaker = Callable[[str, torch.device, torch.dtype | None], Engine]


def _builtin(device: torch.device, dtype: torch.dtype | None) -> Engine:
    from engine.builtin.voice import load_voice

    return load_voice(device=device, dtype=dtype or torch.float32)


def _moss(place: str, device: torch.device, dtype: torch.dtype | None) -> Engine:
    from engine.checkpoints import load_checkpoint

    return load_checkpoint(place, device, dtype)


def _fake(_device: torch.device, _dtype: torch.dtype | None) -> Engine:
    from engine.fake import FakeEngine

    return FakeEngine()


NAMES: dict[str, Maker] = {"builtin": _builtin, "fake": _fake}
KINDS: dict[str, PlaceMaker] = {"moss": _moss}


def load_engine(spec: str, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Engine:
    """The engine of a spec, on `device` (None: the CPU) and in `dtype`.

    `spec` is a name ("builtin"), or a kind and a place: a checkpoint folder ("moss:path/to/folder") or an id on the
    Hugging Face hub ("moss:owner/name", "moss:owner/name@revision"). `dtype` None is float32, but bfloat16 for the
    large MOSS voices on a GPU.

    Raises:
        ValueError: nothing has this name or kind (the message lists what there is), the device is
            not there, or the checkpoint cannot be used.
    """
    if not isinstance(spec, str):
        raise TypeError(f"engine: {spec!r} is a {type(spec).__name__}; give a name such as 'builtin'")
    where = device_of(device)
    if spec in NAMES:
        return NAMES[spec](where, dtype)
    kind, _, place = spec.partition(":")
    if not place or kind not in KINDS:
        allowed = sorted(NAMES) + [f"{known}:{place}" for known in sorted(KINDS) for place in ("FOLDER", "HUB_ID")]
        raise ValueError(f"engine: {spec!r} is not known; allowed are {', '.join(allowed)}")
    return KINDS[kind](place, where, dtype)
