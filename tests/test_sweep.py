"""Sweeps with voices that need no weights: kept, resumed, repaired, and the same table whatever happened on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import run
from experiments.sweep.store import RunError, RunStore
from experiments.sweep.work import Ended

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'chunksearch[study]'")
from experiments.sweep.tables import read_table

SWEEP = ["--engine", "fake", "--scorer", "fake", "--n", "1,3", "--beam-width", "1,2", "--seeds", "1,2"]
TABLES = ("table.parquet", "table.csv", "steps.parquet", "steps.csv")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "p.txt"
    path.write_text("It rains.\nWe stay at home.\nCome back soon.\n")
    return path


def swept(folder: Path, prompts: Path, *more: str) -> int:
    return run(["sweep", *SWEEP, "--prompts", str(prompts), "-o", str(folder), "--workers", "2", *more])


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that nothing disturbed, and its prompts."""
    folder = tmp_path_factory.mktemp("run")
    prompts = folder / "p.txt"
    prompts.write_text("It rains.\nWe stay at home.\nCome back soon.\n")
    assert swept(folder / "run", prompts, "--losers") == 0
    return folder / "run", prompts


def copy(folder: Path, target: Path) -> Path:
    import shutil

    shutil.copytree(folder, target)
    return target


def test_a_run_is_whole(finished: tuple[Path, Path]) -> None:
    folder, _ = finished
    store = RunStore.open(folder)
    assert set(store.states().values()) == {"done"}
    rows = read_table(folder / "table.parquet")
    assert len(rows) == 3 * 2 * 3
    assert [row["unit"] for row in rows] == store.about["units"]
    assert {row["configuration"] for row in rows} == {"n1", "n3-b1", "n3-b2"}
    assert len(store.attempts()) == len(rows)
    about = store.about
    assert about["origin"]["versions"]["torch"]
    assert about["fingerprint"]["shipped weights"]
    steps = read_table(folder / "steps.parquet")
    assert {step["unit"] for step in steps} == set(about["units"])
    first = next(row for row in rows if row["configuration"] == "n3-b1")
    assert list((store.place(first["unit"]) / "candidates").glob("step-001-row-*.wav"))


def test_a_run_has_the_study_that_makes_it_again(finished: tuple[Path, Path], tmp_path: Path) -> None:
    folder, _ = finished
    again = tmp_path / "again"
    assert run(["sweep", str(folder / "study.toml"), "-o", str(again), "--workers", "2"]) == 0
    assert tables(again) == tables(folder)
    assert (again / "study.toml").read_bytes() == (folder / "study.toml").read_bytes()


def test_candidates_share_their_noise_across_n(finished: tuple[Path, Path]) -> None:
    """Row 0 of N = 3 begins as N = 1 does: its reward at the first step is the same."""
    steps = read_table(finished[0] / "steps.parquet")
    rows = {row["unit"]: row for row in read_table(finished[0] / "table.parquet")}
    first = {
        (rows[step["unit"]]["configuration"], rows[step["unit"]]["prompt"], rows[step["unit"]]["seed"]): step["reward"]
        for step in steps
        if step["step"] == 1 and step["row"] == 0
    }
    for (configuration, prompt, seed), reward in first.items():
        assert reward == first["n1", prompt, seed], configuration


def test_another_run_is_not_written_over(finished: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder, prompts = finished
    before = tables(folder)
    assert swept(folder, prompts) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert tables(folder) == before


def test_resuming_what_is_finished_changes_nothing(finished: tuple[Path, Path], tmp_path: Path) -> None:
    folder, prompts = copy(finished[0], tmp_path / "again"), finished[1]
    attempts = len(RunStore.open(folder).attempts())
    assert swept(folder, prompts, "--losers", "--resume") == 0
    assert tables(folder) == tables(finished[0])
    assert len(RunStore.open(folder).attempts()) == attempts


@pytest.mark.parametrize("damage", ["cut", "gone", "other run", "no manifest", "bad manifest", "index", "partial"])
def test_what_is_torn_is_made_again(finished: tuple[Path, Path], tmp_path: Path, damage: str) -> None:
    folder, prompts = copy(finished[0], tmp_path / "torn"), finished[1]
    store = RunStore.open(folder)
    place = store.place(store.about["units"][4])
    manifest = place / "manifest.json"
    match damage:
        case "cut":
            audio = place / "audio.wav"
            audio.write_bytes(audio.read_bytes()[:-10])
        case "gone":
            (place / "steps.jsonl").unlink()
        case "other run":
            manifest.write_text(manifest.read_text().replace(store.run, "0" * 32))
        case "no manifest":
            manifest.unlink()
        case "bad manifest":
            manifest.write_text('{"run": ')
        case "index":
            with (folder / "index.jsonl").open("a") as index:
                index.write('{"run": "')
        case "partial":
            (folder / "units" / ".0123.abc").mkdir()
    assert store.state(place.name) == ("done" if damage in ("index", "partial") else "torn")
    assert swept(folder, prompts, "--losers", "--resume") == 0
    assert tables(folder) == tables(finished[0])
    assert not list((folder / "units").glob(".*"))


def test_runs_of_other_studies_and_other_code_are_refused(finished: tuple[Path, Path], tmp_path: Path) -> None:
    folder, prompts = copy(finished[0], tmp_path / "other"), finished[1]
    assert swept(folder, prompts, "--losers", "--resume", "--temperature", "0.5") == 2
    store = RunStore.open(folder)
    for mark in ("version of torch", "code", "shipped weights"):
        assert mark in store.about["fingerprint"]
        about = {**store.about, "fingerprint": {**store.about["fingerprint"], mark: "1.0"}}
        (folder / "run.json").write_text(json.dumps(about))
        assert swept(folder, prompts, "--losers", "--resume") == 2
    for content, message in (
        ("{", "cannot be read"),
        ('{"format": 1, "run": "a"}', r"cannot be read \(no 'study' in it"),
        ("[]", r"format \[\] is not 1"),
    ):
        (folder / "run.json").write_text(content)
        with pytest.raises(RunError, match=rf"run\.json: {message}"):
            RunStore.open(folder)


def test_a_foreign_unit_is_not_counted(finished: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    folder, prompts = copy(finished[0], tmp_path / "foreign"), finished[1]
    (folder / "units" / "0123456789abcdef").mkdir()
    assert swept(folder, prompts, "--losers", "--resume") == 2
    assert "units/0123456789abcdef is no unit of this run" in capsys.readouterr().err


def test_killed_at_any_moment_and_resumed_it_is_the_same(finished: tuple[Path, Path], tmp_path: Path) -> None:
    """SIGKILL of the parent, three times, each after some more units."""
    folder, prompts = tmp_path / "killed", finished[1]
    command = [sys.executable, "-m", "experiments.cli", "sweep", *SWEEP, "--prompts", str(prompts), "-o", str(folder)]
    command += ["--workers", "2", "--losers", "--resume"]
    for units in (1, 5, 9):
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while len(list(folder.glob("units/*/manifest.json"))) < units and process.poll() is None:
            assert time.monotonic() < deadline, "nothing was made"
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert swept(folder, prompts, "--losers", "--resume") == 0
    assert tables(folder) == tables(finished[0])
    assert set(RunStore.open(folder).states().values()) == {"done"}


def test_two_sweeps_do_not_write_to_one_run(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, prompts = copy(finished[0], tmp_path / "busy"), finished[1]
    partial = folder / "units" / ".0123.abc"
    partial.mkdir()
    for shared, more, code in (
        (False, ["--resume"], 2),
        (False, ["--part", "1/2"], 2),
        (True, ["--resume"], 2),
        (True, ["--part", "1/2"], 0),
    ):
        with RunStore.open(folder).lock(shared=shared):
            assert swept(folder, prompts, "--losers", *more) == code
        assert ("another sweep is writing to it" in capsys.readouterr().err) == (code == 2)
        assert partial.exists()
    assert swept(folder, prompts, "--losers", "--resume") == 0
    assert not partial.exists()


def test_a_sweep_holds_its_run_while_its_units_are_spoken(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = tmp_path / "held", []

    def work(place: Path, _jobs: Any, _workers: int) -> Iterator[Ended]:
        with pytest.raises(RunError, match="another sweep"):
            RunStore.open(place).lock(shared=True)
        asked.append(place)
        return iter(())

    monkeypatch.setattr("experiments.commands.sweep.executor_of", lambda _: work)
    assert swept(folder, finished[1]) == 0
    assert asked == [folder]
    RunStore.open(folder).lock(shared=False).close()


def test_a_lock_goes_with_its_process(finished: tuple[Path, Path], tmp_path: Path) -> None:
    store = RunStore.open(copy(finished[0], tmp_path / "killed"))
    program = """if True:
        import sys, time
        from pathlib import Path
        from experiments.sweep.store import RunStore
        lock = RunStore.open(Path(sys.argv[1])).lock(shared=False)
        print("held", flush=True)
        time.sleep(600)
    """
    command = [sys.executable, "-c", program, str(store.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another sweep"):
            store.lock(shared=False)
        process.kill()
    store.lock(shared=False).close()


def test_parts_make_one_run(finished: tuple[Path, Path], tmp_path: Path) -> None:
    folder, prompts = tmp_path / "parts", finished[1]
    for part in ("1/2", "2/2"):
        assert swept(folder, prompts, "--losers", "--part", part) == 0
    assert tables(folder) == tables(finished[0])


def test_batches_change_no_number(finished: tuple[Path, Path], tmp_path: Path) -> None:
    assert swept(tmp_path / "batched", finished[1], "--losers", "--batch", "2") == 0
    assert tables(tmp_path / "batched") == tables(finished[0])
