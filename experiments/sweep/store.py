"""Where a sweep is kept: a folder a run, a folder a unit, and no doubt about what is complete.

    run.json           what the run is: id, study, fingerprint of code and weights, origin; written first
    study.toml         the study as it was run, for running it again; read by nothing here
    index.jsonl        a line an attempt; only ever added to
    units/DIGEST/      all of one unit; manifest.json, written last, has the sums of the other files
    lock               held by sweeps that write to the run; empty

A unit counts when its manifest names this run and this unit and every sum is right. Whatever else lies there is torn,
and made again. Knows nothing of what a unit's files mean.
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from experiments.sweep.files import append_line, plain_json, read_lines, sum_of, write_once, write_whole
from experiments.sweep.study import StudySpec, Unit
from experiments.sweep.toml_text import toml_text

FORMAT = 1
STUDY = "study.toml"
_ABOUT = ("run", "study", "units", "fingerprint", "origin")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
State = Literal["done", "failed", "missing", "torn"]


class RunError(ValueError):
    """A run folder cannot be used; the message names it, says why, and what to do."""


@dataclass(frozen=True)
class RunStore:
    """One run. Several processes may write units of it at once.

    Attributes:
        run: id of the run, in every file that belongs to it.
        about: what `run.json` holds.
    """

    folder: Path
    run: str
    about: Mapping[str, Any]

    @classmethod
    def create(
        cls,
        folder: Path,
        spec: StudySpec,
        units: Sequence[Unit],
        fingerprint: Mapping[str, Any],
        origin: Mapping[str, Any],
    ) -> RunStore:
        """A new run in a folder that is empty or not there; raises `RunError` for any other.

        Of several processes that create one run at once, one does, and the others find it there: `FileExistsError`.
        """
        foreign = not folder.is_dir() or any(not _of_a_beginning(path) for path in folder.iterdir())
        if (folder / "run.json").exists():  # asked last: another process may have begun this run in the meantime
            raise FileExistsError(folder / "run.json")
        if folder.exists() and foreign:
            raise RunError(f"{folder}: not empty, and no run; give another folder")
        about = {
            "format": FORMAT,
            "run": uuid.uuid4().hex,
            "study": spec.model_dump(),
            "units": [unit.digest for unit in units],
            "fingerprint": dict(fingerprint),
            "origin": dict(origin),
        }
        (folder / "units").mkdir(parents=True, exist_ok=True)
        write_once(folder / "run.json", plain_json(about))
        write_whole(folder / STUDY, toml_text(spec.model_dump()).encode())
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """The run in a folder; raises `RunError` where there is none that can be read."""
        path = folder / "run.json"
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
        except OSError:
            raise RunError(f"{folder}: no run in it ({path.name} is not there)") from None
        except ValueError as error:
            raise RunError(f"{path}: cannot be read ({error}); the run cannot go on, start another") from None
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            found = about.get("format") if isinstance(about, dict) else about
            raise RunError(f"{path}: format {found!r} is not {FORMAT}, the one that this version writes")
        lost = [name for name in _ABOUT if name not in about]
        if lost:
            raise RunError(f"{path}: cannot be read (no {lost[0]!r} in it); the run cannot go on, start another")
        return cls(folder, about["run"], about)

    @classmethod
    def resume(cls, folder: Path, units: Sequence[Unit], fingerprint: Mapping[str, Any]) -> RunStore:
        """The run in a folder, if it is a run of just these units with the same code and weights.

        Raises:
            RunError: naming what differs: units of another study, or another fingerprint.
        """
        store = cls.open(folder)
        asked, kept = [unit.digest for unit in units], list(store.about["units"])
        if asked != kept:
            more, fewer = len(set(asked) - set(kept)), len(set(kept) - set(asked))
            raise RunError(
                f"{folder}: a run of another study: of its {len(kept)} units {fewer} are not asked for now, "
                f"and {more} that are asked for are not its own; give another folder"
            )
        for name, value in fingerprint.items():
            if store.about["fingerprint"].get(name) != value:
                old = store.about["fingerprint"].get(name)
                raise RunError(
                    f"{folder}: begun with {name} {old}, now it is {value}; results would mix, start another run"
                )
        foreign = {path.name for path in store._folders()} - set(kept)
        if foreign:
            raise RunError(f"{folder}: units/{min(foreign)} is no unit of this run; remove it, or give another folder")
        return store

    def lock(self, *, shared: bool) -> BinaryIO:
        """Keep other sweeps away for as long as the file that this returns is open: all, or those that do not share.

        The lock goes with the process, however it ends. Some network file systems know no locks: there is none there.

        Raises:
            RunError: another sweep holds the run.
        """
        file = (self.folder / "lock").open("ab+")
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return file
            file.close()
            if isinstance(error, BlockingIOError):
                raise RunError(f"{self.folder}: another sweep is writing to it; wait until it has ended") from None
            raise
        return file

    def clean(self) -> None:
        """Remove what interrupted attempts left behind; for the holder of a lock that is not shared."""
        for path in (self.folder / "units").glob(".*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.glob(".*.partial"):
            path.unlink(missing_ok=True)

    def place(self, digest: str) -> Path:
        """The folder of a unit."""
        return self.folder / "units" / digest

    def write(self, digest: str, files: Mapping[str, bytes], state: Literal["done", "failed"]) -> None:
        """Keep a unit, in the place of whatever an earlier attempt left."""
        place = self.place(digest)
        partial = place.with_name(f".{digest}.{uuid.uuid4().hex}")
        partial.mkdir()
        for name, content in files.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_bytes(content)
        sums = {name: sum_of(content) for name, content in files.items()}
        manifest = {"format": FORMAT, "run": self.run, "unit": digest, "state": state, "files": sums}
        write_whole(partial / "manifest.json", plain_json(manifest))
        if place.exists():
            shutil.rmtree(place)
        partial.rename(place)
        append_line(self.folder / "index.jsonl", {"run": self.run, "unit": digest, "state": state, "time": time.time()})

    def state(self, digest: str) -> State:
        """Whether a unit is there, whole, and of this run; reads all of its files."""
        place = self.place(digest)
        if not place.exists():
            return "missing"
        try:
            manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
            whole = (manifest["run"], manifest["unit"]) == (self.run, digest) and all(
                sum_of((place / name).read_bytes()) == asked for name, asked in manifest["files"].items()
            )
            state: State = manifest["state"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "torn"
        return state if whole and state in ("done", "failed") else "torn"

    def states(self) -> dict[str, State]:
        """Of every unit of the run, in order."""
        return {digest: self.state(digest) for digest in self.about["units"]}

    def attempts(self) -> list[dict[str, Any]]:
        """The index: what was tried, in the order in which it ended. Lines of other runs are left out."""
        return [line for line in read_lines(self.folder / "index.jsonl") if line.get("run") == self.run]

    def read(self, digest: str, name: str) -> Any:
        """What one of a unit's JSON files holds."""
        return json.loads((self.place(digest) / name).read_text(encoding="utf-8"))

    def _folders(self) -> Iterator[Path]:
        return (path for path in (self.folder / "units").iterdir() if not path.name.startswith("."))


def _of_a_beginning(path: Path) -> bool:
    """What a process that is about to begin a run, or was killed as it did, has in the run's folder."""
    return path.name == "units" or (path.name.startswith(".run.json.") and path.name.endswith(".partial"))
