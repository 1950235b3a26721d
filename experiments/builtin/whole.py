"""Files of the recipe that are whole or not there, whenever a stage is stopped. It does not know what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place to write to, which becomes `path` when all is written; an earlier file stays until then."""
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    partial.replace(path)
