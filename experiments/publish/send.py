"""The commits of a plan, sent: what is there already is not sent again, and a busy hub is waited for.

Knows a repository by what it can do, not by whose it is.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from experiments.publish.plan import CARD, PACKED, Commit, Upload, packed

Found = TypeVar("Found")
_BUSY = (429, 500, 502, 503, 504)
_TRIES = 6


@dataclass(frozen=True)
class Remote:
    """A file that a repository has: SHA-256 where it is kept apart for its size, and git's own sum where not."""

    sha256: str | None
    blob: str


class Repository(Protocol):
    """What is needed of a repository on the hub."""

    def create(self) -> None:
        """Make it, if it is not there."""

    def files(self) -> Mapping[str, Remote]:
        """What it holds, by path."""

    def commit(self, message: str, files: Mapping[str, bytes], removed: Sequence[str]) -> None:
        """Put files in it and take others out, all or nothing."""


def send(
    folder: Path,
    commits: Sequence[Commit],
    repository: Repository,
    card: bytes,
    arrived: Callable[[Commit], None],
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Send a site; returns the number of commits that this took.

    With the last one go files of an earlier site that this one does not have: nobody shall take old figures for new
    ones. Whatever is not in a folder of the site's own stays.

    Args:
        arrived: told of every commit of the plan when all of it is there.
    """
    _patiently(repository.create, sleep)
    there = _patiently(repository.files, sleep)
    sent = 0
    for commit in commits:
        contents = {upload.path: _content(folder, upload, card) for upload in commit.uploads}
        missing = {path: content for path, content in contents.items() if not _is_there(there.get(path), content)}
        removed = _stale(commits, there) if commit is commits[-1] else []
        if missing or removed:
            _patiently(_sending(repository, commit.message, missing, removed), sleep)
            sent += 1
        arrived(commit)
    return sent


def _stale(commits: Sequence[Commit], there: Mapping[str, Remote]) -> list[str]:
    paths = {upload.path for commit in commits for upload in commit.uploads}
    own = {path.split("/")[0] for path in paths if "/" in path} | set(PACKED)
    return sorted(path for path in there if path not in paths and "/" in path and path.split("/")[0] in own)


def _sending(
    repository: Repository, message: str, files: Mapping[str, bytes], removed: Sequence[str]
) -> Callable[[], None]:
    return lambda: repository.commit(message, files, removed)


def _content(folder: Path, upload: Upload, card: bytes) -> bytes:
    if upload.is_packed:
        return packed(folder, upload.sources)
    return card if upload.path == CARD else (folder / upload.path).read_bytes()


def _is_there(remote: Remote | None, content: bytes) -> bool:
    if remote is None:
        return False
    if remote.sha256 is not None:
        return remote.sha256 == hashlib.sha256(content).hexdigest()
    return remote.blob == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _patiently(act: Callable[[], Found], sleep: Callable[[float], None]) -> Found:
    """Try again while the hub is busy, after the time that it asks for, else after longer each time."""
    for attempt in range(1, _TRIES):
        try:
            return act()
        except Exception as error:
            response = getattr(error, "response", None)
            if getattr(response, "status_code", None) not in _BUSY:
                raise
            asked = str(getattr(response, "headers", {}).get("Retry-After", ""))
            sleep(float(asked) if asked.isdigit() else 2.0**attempt)
    return act()
