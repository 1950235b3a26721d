"""What fails in a sweep stays visible, costs nothing else, and is tried again; whoever does the work may die."""

import os
import signal
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engine.fake import FakeEngine
from experiments.cli import run
from experiments.sweep.executors import local
from experiments.sweep.progress import SweepProgress
from experiments.sweep.store import RunStore
from experiments.sweep.work import Ended, Job, work

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'chunksearch[study]'")
from experiments.sweep.tables import read_table

FAKE = ["sweep", "--engine", "fake", "--scorer", "fake", "--n", "2", "--workers", "1"]
DEADLY = "We stay at home."


def deadly(folder: Path, job: Job) -> list[Ended]:
    """Kills its own process at one of the prompts."""
    if job.units[0].prompt.text == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return work(folder, job)


def test_a_unit_that_fails_is_kept_as_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts, folder = tmp_path / "p.jsonl", tmp_path / "run"
    prompts.write_text('{"text": "It rains."}\n{"text": "Es regnet.", "language": "German"}\n{"text": "Oh."}\n')
    for more in ([], ["--resume"]):  # a failed unit is tried again
        assert run([*FAKE, "--prompts", str(prompts), "-o", str(folder), "--batch", "3", *more]) == 1
        assert "1 of 3 units failed" in capsys.readouterr().err
    rows = read_table(folder / "table.parquet")
    assert [row["status"] for row in rows] == ["complete", "failed", "complete"]
    assert "language" in rows[1]["error"]
    assert rows[1]["seconds"] is None
    states = [attempt["state"] for attempt in RunStore.open(folder).attempts()]
    assert states.count("failed") == 2


def test_a_process_that_dies_costs_its_own_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, folder = tmp_path / "p.txt", tmp_path / "run"
    prompts.write_text(f"It rains.\n{DEADLY}\nCome back soon.\n")
    monkeypatch.setattr(local, "work", deadly)
    assert run([*FAKE, "--prompts", str(prompts), "-o", str(folder)]) == 1
    rows = read_table(folder / "table.parquet")
    assert [row["status"] for row in rows] == ["complete", "failed", "complete"]
    assert "its process died" in rows[1]["error"]
    monkeypatch.undo()
    assert run([*FAKE, "--prompts", str(prompts), "-o", str(folder), "--resume"]) == 0
    assert {row["status"] for row in read_table(folder / "table.parquet")} == {"complete"}


def test_a_process_that_dies_idle_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one process is killed, and known to be dead, after its first unit and before its second."""
    prompts, folder = tmp_path / "p.txt", tmp_path / "run"
    prompts.write_text("It rains.\nCome back soon.\n")
    submitted = local._submitted
    killed: list[int] = []

    def after_a_kill(slots: list[ProcessPoolExecutor], slot: int, *job: Any) -> Any:
        if slots[slot]._processes and not killed:
            (process,) = slots[slot]._processes.values()
            waiting = slots[slot].submit(time.sleep, 600.0)
            process.kill()
            assert isinstance(waiting.exception(), BrokenProcessPool)
            killed.append(slot)
        return submitted(slots, slot, *job)

    monkeypatch.setattr(local, "_submitted", after_a_kill)
    assert run([*FAKE, "--prompts", str(prompts), "-o", str(folder)]) == 0
    assert len(killed) == 1
    assert [row["status"] for row in read_table(folder / "table.parquet")] == ["complete"] * 2


def test_ray_makes_the_same_tables(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'chunksearch[ray]'")
    prompts = tmp_path / "p.txt"
    prompts.write_text("It rains.\nCome back soon.\n")
    for executor in ("local", "ray"):
        arguments = [*FAKE, "--prompts", str(prompts), "-o", str(tmp_path / executor), "--executor", executor]
        assert run(arguments) == 0
    for name in ("table.parquet", "steps.csv"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "2,100"], "settings.n: 100 is out of range"),
        (["--chunk-ms", "850"], "n2, prompt 'p-01': settings.chunk_ms: 850 is not a whole number of frames of 80 ms"),
        (["--part", "3/2"], "--part: '3/2'; give a part and their number"),
        (["--executor", "slurm"], "--executor: 'slurm' is not known; allowed are local, ray"),
        (["--engine", "nix"], "'nix' is not known"),
        (["--scorer", "nix"], "scorer: 'nix' is not known"),
        (["--scorer", "fake,{folder}/nix.toml"], "heads.nix: kind: 'nix' is not known"),
        (["--seeds", "1.5"], "seeds.0: "),
        (["--prompts", "nowhere.txt"], "nowhere.txt: No such file"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    prompts, folder = tmp_path / "p.txt", tmp_path / "run"
    prompts.write_text("It rains.\n")
    (tmp_path / "nix.toml").write_text("[heads.nix]\n[terms.nix]\nweight = 1.0\n")
    arguments = [argument.format(folder=tmp_path) for argument in arguments]
    assert run([*FAKE, "--prompts", str(prompts), "-o", str(folder), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_engines_are_let_go_before_workers_load_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.txt").write_text("It rains.\n")
    loaded: list[weakref.ref[FakeEngine]] = []

    def load(*_: Any) -> FakeEngine:
        assert not any(engine() for engine in loaded)
        engine = FakeEngine()
        engine.itself = engine  # type: ignore[attr-defined]  # as modules of a network may be in a ring
        loaded.append(weakref.ref(engine))
        return engine

    def execute(*_: Any) -> Iterator[Ended]:
        assert len(loaded) == 2
        assert not any(engine() for engine in loaded)
        return iter(())

    monkeypatch.setattr("experiments.commands.sweep.load_engine", load)
    monkeypatch.setattr("experiments.commands.sweep.executor_of", lambda _: execute)
    arguments = [*FAKE, "--engine", "fake,builtin", "--prompts", str(tmp_path / "p.txt"), "-o", str(tmp_path / "run")]
    assert run(arguments) == 0


def test_a_folder_with_something_else_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.txt").write_text("It rains.\n")
    assert run([*FAKE, "--prompts", str(tmp_path / "p.txt"), "-o", str(tmp_path)]) == 2
    assert "not empty, and no run" in capsys.readouterr().err


def test_a_beginning_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    prompts, folder = tmp_path / "p.txt", tmp_path / "run"
    prompts.write_text("It rains.\n")
    (folder / "units").mkdir(parents=True)
    (folder / ".run.json.0123.partial").write_text("{")
    assert run([*FAKE, "--prompts", str(prompts), "-o", str(folder)]) == 0
    (folder / ".table.csv.0123.partial").write_text("a")
    assert run([*FAKE, "--prompts", str(prompts), "-o", str(folder), "--resume"]) == 0
    assert not list(folder.glob(".*"))


def test_a_folder_that_is_called_like_an_engine_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.txt").write_text("It rains.\n")
    for more in ([], ["--resume"]):
        assert run([*FAKE, "--prompts", "p.txt", "-o", "fake", *more]) == 0


def test_a_dry_run_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.txt").write_text("It rains.\n")
    assert run([*FAKE, "--prompts", str(tmp_path / "p.txt"), "-o", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "candidates" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_progress_without_a_terminal_is_a_line_a_minute() -> None:
    text, now = StringIO(), [0.0]
    with SweepProgress(Console(file=text), 10, clock=lambda: now[0]) as progress:
        for unit in range(5):
            now[0] += 25.0
            progress.ended(failed=unit == 1)
    assert text.getvalue().splitlines() == ["3 of 10 units, 1 failed, 0:02:55 left"]
