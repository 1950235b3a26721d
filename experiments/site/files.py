"""The folder of a site: built aside and put in place whole; a folder that is no site is never touched.

    site.json     written last: what the site is of, and length and SHA-256 of every other file

Knows nothing of what is in the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from experiments.sweep.files import plain_json

FORMAT = 1
MARK = "site.json"
_OF_DESKTOPS = (".DS_Store", ".directory", "Thumbs.db", "desktop.ini")


class SiteError(ValueError):
    """A site cannot be written or read; the message names the folder and says what to do."""


def checked_place(out: Path) -> None:
    """Raises `SiteError` where a site cannot be put: before anything is built, and nothing is changed."""
    if out.is_symlink():
        raise SiteError(f"{out}: a link; name the folder itself")
    if out.is_dir() and any(out.iterdir()):
        foreign = next(iter(_foreign(out)), None)
        if foreign is not None:
            raise SiteError(f"{out}: has files that no site put there ({foreign}); give a new folder, or an older site")
    elif out.exists() and not out.is_dir():
        raise SiteError(f"{out}: a file; give a new folder, or an older site")
    parent = next(path for path in out.absolute().parents if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise SiteError(f"{out}: cannot be written in {parent}")


@contextmanager
def built_aside(out: Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """A folder to build in, which takes the place of `out` when the block ends without an error.

    Raises:
        SiteError: as `checked_place`.
    """
    checked_place(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        files = {name: _sum(partial / name) for name in _names(partial)}
        (partial / MARK).write_bytes(plain_json({"format": FORMAT, **about, "files": files}))
        _swap(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_site(folder: Path) -> dict[str, Any]:
    """What a site's mark says; raises `SiteError` for a folder that is no site, or not whole."""
    try:
        about = json.loads((folder / MARK).read_text(encoding="utf-8"))
        files = dict(about["files"])
    except OSError:
        raise SiteError(f"{folder}: no site in it ({MARK} is not there); make one with: chunksearch study") from None
    except (ValueError, KeyError, TypeError):
        raise SiteError(f"{folder / MARK}: cannot be read; make the site again with: chunksearch study") from None
    for name, asked in files.items():
        path = folder / name
        if not path.is_file() or _sum(path) != asked:
            raise SiteError(f"{path}: not the file that the site was made with; make the site again")
    found: dict[str, Any] = about
    return found


def _swap(partial: Path, out: Path) -> None:
    """The older site steps aside for a moment, and comes back where the new one cannot take its place."""
    older = out.with_name(f".{out.name}.{os.getpid()}.older")
    if out.exists():
        out.rename(older)
    try:
        partial.rename(out)
    except OSError:
        with suppress(OSError):
            older.rename(out)
        raise
    shutil.rmtree(older, ignore_errors=True)


def _foreign(folder: Path) -> Iterator[str]:
    """Files of a folder that are not those of a site; all of them where it has no mark."""
    try:
        known = set(json.loads((folder / MARK).read_text(encoding="utf-8"))["files"]) | {MARK}
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    return (name for name in _names(folder) if name not in known and Path(name).name not in _OF_DESKTOPS)


def _names(folder: Path) -> Iterator[str]:
    """Files below a folder, as paths in it, sorted."""
    return iter(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()))


def _sum(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
