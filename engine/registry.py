"""Names of engines, and the one function that turns a spec into an object. Knows nothing of how an engine works.

Engines are imported when they are asked for, so that none of them costs anything to those who use another.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from search.devices import device_of
from search.protocols import Engine

Maker = Callable[[torch.device, torch.dtype], Engine]
FolderMaker = Callable[[Path, torch.device, torch.dtype], Engine]


def _builtin(device: torch.device, dtype: torch.dtype) -> Engine:
    from engine.builtin.voice import load_voice

    return load_voice(device=device, dtype=dtype)


def _moss(folder: Path, device: torch.device, dtype: torch.dtype) -> Engine:
    from engine.builtin.voice import load_voice

    return load_voice(folder, name=f"moss:{folder}", device=device, dtype=dtype)


def _fake(_device: torch.device, _dtype: torch.dtype) -> Engine:
    from engine.fake import FakeEngine

    return FakeEngine()


NAMES: dict[str, Maker] = {"builtin": _builtin, "fake": _fake}
KINDS: dict[str, FolderMaker] = {"moss": _moss}


def load_engine(spec: str, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Engine:
    """The engine of a spec, on `device` (None: the CPU) and in `dtype` (None: float32).

    `spec` is a name ("builtin"), or a kind and a checkpoint folder ("moss:path/to/folder").

    Raises:
        ValueError: nothing has this name or kind (the message lists what there is), the device is
            not there, or the checkpoint cannot be used.
    """
    if not isinstance(spec, str):
        raise TypeError(f"engine: {spec!r} is a {type(spec).__name__}; give a name such as 'builtin'")
    where, kind_of_number = device_of(device), dtype or torch.float32
    if spec in NAMES:
        return NAMES[spec](where, kind_of_number)
    kind, colon, path = spec.partition(":")
    if not colon or kind not in KINDS:
        allowed = sorted(NAMES) + [f"{known}:FOLDER" for known in sorted(KINDS)]
        raise ValueError(f"engine: {spec!r} is not known; allowed are {', '.join(allowed)}")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ValueError(f"engine: {spec!r} asks for the folder {str(folder)!r}, which does not exist")
    return KINDS[kind](folder, where, kind_of_number)
