"""Which files of a site go to the hub in which commit. Knows no network.

As a dataset, audio goes into tar files: the hub refuses many small files, and allows 128 commits an hour. As a static
space every file is there by itself, for pages to play.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from experiments.site.files import MARK

Kind = Literal["dataset", "space"]
KINDS: tuple[Kind, ...] = ("dataset", "space")
PACKED = ("audio", "candidates")
FILES_PER_COMMIT = 200
COMMIT_BYTES = 512 << 20
SHARD_BYTES = 128 << 20
CARD = "README.md"

Item = TypeVar("Item")


@dataclass(frozen=True)
class Upload:
    """One file of the repository.

    Attributes:
        path: in the repository.
        bytes: its length.
        sources: the file of the site that it is, or those that are packed in it.
    """

    path: str
    bytes: int
    sources: Sequence[str]

    @property
    def is_packed(self) -> bool:
        return self.path.endswith(".tar")


@dataclass(frozen=True)
class Commit:
    """Files that arrive together."""

    message: str
    uploads: Sequence[Upload]

    @property
    def bytes(self) -> int:
        return sum(upload.bytes for upload in self.uploads)

    @property
    def sources(self) -> int:
        """Files of the site in it."""
        return sum(len(upload.sources) for upload in self.uploads)


def planned(folder: Path, about: Mapping[str, Any], kind: Kind, card: bytes) -> list[Commit]:
    """The commits of a site: audio first, its mark last, so that a repository that has the mark is whole.

    Args:
        about: what the mark says.
        card: what `README.md` is to be.
    """
    sizes = {name: int(entry["bytes"]) for name, entry in about["files"].items()} | {CARD: len(card)}
    uploads: list[Upload] = []
    for top in PACKED:
        names = [name for name in sizes if name.split("/")[0] == top]
        shards = [[name] for name in names] if kind == "space" else _shards(names, sizes)
        uploads += [
            Upload(shard[0], sizes[shard[0]], shard)
            if kind == "space"
            else Upload(f"{top}/part-{number:03d}.tar", tar_bytes([sizes[name] for name in shard]), shard)
            for number, shard in enumerate(shards)
        ]
    pages = [name for name in sizes if name.split("/")[0] not in PACKED and name != CARD]
    uploads += [Upload(name, sizes[name], [name]) for name in (*pages, CARD)]
    uploads.append(Upload(MARK, (folder / MARK).stat().st_size, [MARK]))
    groups = _cut(uploads, lambda upload: upload.bytes, COMMIT_BYTES, FILES_PER_COMMIT)
    return [Commit(f"{about['name']}: part {place} of {len(groups)}", group) for place, group in enumerate(groups, 1)]


def tar_bytes(sizes: Sequence[int]) -> int:
    """Length of a tar file of files of these sizes: a header each, whole blocks, and an end that fills a record."""
    blocks = sum(_blocks(size) for size in sizes) + 2
    record = tarfile.RECORDSIZE // tarfile.BLOCKSIZE
    return -(-blocks // record) * tarfile.RECORDSIZE


def packed(folder: Path, names: Sequence[str]) -> bytes:
    """A tar file of files of a folder: the same bytes for the same files, whenever and by whom it is made."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            content = (folder / name).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def _shards(names: Sequence[str], sizes: Mapping[str, int]) -> list[list[str]]:
    return _cut(names, lambda name: _blocks(sizes[name]) * tarfile.BLOCKSIZE, SHARD_BYTES, None)


def _blocks(size: int) -> int:
    """Of a file in a tar file: its header's, and as many as it fills."""
    return 1 + -(-size // tarfile.BLOCKSIZE)


def _cut(
    items: Sequence[Item], size: Callable[[Item], int], most_bytes: int, most_items: int | None
) -> list[list[Item]]:
    """Items in their order, in groups within both limits; one that is larger than a group is a group of its own."""
    groups: list[list[Item]] = []
    filled = 0
    for item in items:
        full = groups and (filled + size(item) > most_bytes or len(groups[-1]) == most_items)
        if not groups or full:
            groups.append([])
            filled = 0
        groups[-1].append(item)
        filled += size(item)
    return groups
