"""A stand-in for the package huggingface_hub, so that nothing is asked of a network. It knows no checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class RepositoryNotFoundError(Exception): ...


class GatedRepoError(RepositoryNotFoundError): ...


class RevisionNotFoundError(Exception): ...


class Hub:
    """Takes the package's place: remembers calls, gives a folder or raises."""

    def __init__(self, answer: Path | type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []
        package, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
        package.snapshot_download = self.snapshot_download  # type: ignore[attr-defined]
        for kind in (RepositoryNotFoundError, GatedRepoError, RevisionNotFoundError):
            setattr(errors, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, "huggingface_hub", package)
        monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)

    def snapshot_download(self, name: str, **options: Any) -> str:
        self.calls.append((name, options))
        if isinstance(self.answer, Path):
            return str(self.answer)
        raise self.answer("a long message\nof several lines")
