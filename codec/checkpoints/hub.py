"""Checkpoint folders from the Hugging Face hub, through the cache of `huggingface_hub`, which is imported when needed.

Only the files that are read are fetched, never code. It does not know what is in a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""What is read of a checkpoint: settings, weights and tokenizer, in the folders below too."""

_ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_INSTALL = "pip install huggingface_hub"


def located(place: str, files: Sequence[str] = FILES) -> Path:
    """The folder of a checkpoint: `place` is a folder, or a hub id such as "owner/name" or "owner/name@revision".

    A snapshot that is in the cache is used as it is where the hub cannot be reached.

    Raises:
        ValueError: there is no such folder and no such checkpoint, or it cannot be fetched; one line with the cure.
    """
    folder = Path(place).expanduser()
    if folder.is_dir():
        return folder
    found = _ID.fullmatch(place)
    if not found or place.startswith("."):
        raise ValueError(
            f"{place!r} is no folder that exists, and no hub id either (owner/name, or owner/name@revision)"
        )
    return _fetched(found["name"], found["revision"], files)


def _fetched(name: str, revision: str | None, files: Sequence[str]) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError:
        raise ValueError(
            f"{name!r} is no folder, and fetching it from the hub needs the package huggingface_hub: {_INSTALL}"
        ) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except GatedRepoError:
        cure = f"accept its terms on https://huggingface.co/{name}, then run `hf auth login`"
    except RevisionNotFoundError:
        cure = f"there is no revision {revision!r} of it; leave it out for the newest"
    except RepositoryNotFoundError:
        cure = "the hub has no such checkpoint, or keeps it private; check the name, or run `hf auth login`"
    except Exception as error:  # what a transport raises is not the hub's to promise
        cure = (
            f"the hub cannot be reached and the cache has no whole copy ({type(error).__name__}); "
            f"go online once, or give a folder that `hf download {name} --local-dir FOLDER` filled elsewhere"
        )
    raise ValueError(f"{name!r} is no folder here; as a hub id: {cure}")
