"""CLAP: whether a clip sounds as the request's instruction says. Two packages can bring the networks, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from scorers.clap.head import Style, Towers
from scorers.rereader import Rereader

EXTRAS = {"laion": "clap", "transformers": "clap-hf"}
"""What to install for each back end."""


def load(device: torch.device, *, model: str, backend: str = "auto", text_model: str | None = None) -> Rereader:
    """CLAP as a head.

    Args:
        model: a checkpoint file of LAION's training code, a folder of transformers' `ClapModel`, or a hub's repository.
        backend: "laion" (the `laion-clap` package, for files), "transformers" (for folders and hubs), or "auto".
        text_model: for files, a folder with RoBERTa's `config.json`, `vocab.json` and `merges.txt`.

    Raises:
        ValueError: an option is wrong, a file is missing or damaged, or a package is not installed.
    """
    if backend not in ("auto", *EXTRAS):
        raise ValueError(f"backend: {backend!r} is not known; allowed are auto, {', '.join(EXTRAS)}")
    backend = _backend_of(model) if backend == "auto" else backend
    if backend == "transformers" and text_model is not None:
        raise ValueError(f"text_model: {text_model!r} is for the backend 'laion'; transformers' checkpoints bring it")
    with _installed(backend):
        return Rereader(Style(_towers(backend, model, text_model, device)))


def _towers(backend: str, model: str, text_model: str | None, device: torch.device) -> Towers:
    if backend == "laion":
        from scorers.clap import package

        return package.load_towers(model, text_model, device)
    from scorers.clap import hub

    return hub.load_towers(model, device)


def _backend_of(model: str) -> str:
    path = Path(model).expanduser()
    return "laion" if path.is_file() or path.suffix in (".pt", ".pth") else "transformers"


@contextmanager
def _installed(backend: str) -> Iterator[None]:
    """A missing package is answered with the extra that brings it: the two back ends have one each."""
    try:
        yield
    except ModuleNotFoundError as error:
        cure = f"pip install 'chunksearch[{EXTRAS[backend]}]'"
        raise ValueError(
            f"backend: {backend!r} needs the package {error.name!r}, which is not installed; {cure}"
        ) from error
