"""Judges: figures of the audio that was chosen, kept so that they are of just this audio and just this judge."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from experiments.cli import run
from experiments.judge.measures import measures, seam_jump
from experiments.sweep.store import RunStore
from scorers.fake import FakeScorer, FakeScorerStream
from search import SpeechRequest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'chunksearch[study]'")
from experiments.sweep.tables import read_table

RATE = 24_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("judged")
    (place / "p.txt").write_text("It rains.\nCome back soon.\n")
    arguments = ["sweep", "--engine", "fake", "--scorer", "fake", "--n", "1,2", "--prompts", str(place / "p.txt")]
    assert run([*arguments, "-o", str(place / "run"), "--workers", "1"]) == 0
    return place / "run"


def judged(folder: Path, scorer: str = "random") -> list[dict[str, object]]:
    assert run(["judge", str(folder), "--scorer", scorer]) == 0
    return read_table(folder / "judgements" / f"{Path(scorer).stem}.parquet")


def test_every_unit_is_judged_once(folder: Path) -> None:
    first = judged(folder)
    assert [row["unit"] for row in first] == RunStore.open(folder).about["units"]
    assert {"judge.reward", "judge.duration", "judge.clipped_samples", "judge.seam_jump"} <= set(first[0])
    places = sorted(folder.glob("units/*/judge-random.json"))
    written = {path: path.stat().st_mtime_ns for path in places}
    assert judged(folder) == first
    assert {path: path.stat().st_mtime_ns for path in places} == written


@pytest.mark.parametrize("damage", ["torn", "gone", "other audio", "other judge"])
def test_what_is_of_something_else_is_judged_again(folder: Path, damage: str) -> None:
    before = judged(folder)
    path = sorted(folder.glob("units/*/judge-random.json"))[1]
    verdict = json.loads(path.read_text())
    match damage:
        case "torn":
            path.write_text(path.read_text()[:40])
        case "gone":
            path.unlink()
        case "other audio":
            path.write_text(json.dumps(verdict | {"audio": "0" * 64, "figures": {"judge.reward": 9.0}}))
        case "other judge":
            path.write_text(json.dumps(verdict | {"mark": "0" * 16, "figures": {"judge.reward": 9.0}}))
    assert judged(folder) == before


def test_a_judge_does_not_spoil_the_run(folder: Path) -> None:
    judged(folder)
    assert set(RunStore.open(folder).states().values()) == {"done"}


class Deaf(FakeScorer):
    """Cannot hear one of the texts."""

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> FakeScorerStream:
        if requests[0].text == "It rains.":
            raise RuntimeError("no ear\nfor this")
        return super().open(requests, n, sample_rate, hop)


def test_a_take_that_cannot_be_heard_costs_no_other(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = judged(folder)
    run_folder = tmp_path / "run"
    shutil.copytree(folder, run_folder, ignore=shutil.ignore_patterns("judge*"))
    with monkeypatch.context() as patch:
        patch.setattr("experiments.commands.judge.load_scorer", lambda *_: Deaf())
        assert run(["judge", str(run_folder), "--scorer", "random"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "2 of 4 units could not be judged" in said
    assert "RuntimeError: no ear for this" in said
    rows = read_table(run_folder / "judgements" / "random.parquet")
    errors = [row["judge.error"] for row in rows]
    assert errors == ["RuntimeError: no ear for this", None] * 2
    assert [row["judge.reward"] is None for row in rows] == [True, False] * 2
    heard = {row["unit"] for row in rows if row["judge.error"] is None}
    kept = {unit: path_of(run_folder, unit).stat().st_mtime_ns for unit in heard}
    again = judged(run_folder)
    assert {unit: path_of(run_folder, unit).stat().st_mtime_ns for unit in heard} == kept
    assert "judge.error" not in again[0]
    assert [row["judge.duration"] for row in again] == [row["judge.duration"] for row in whole]


def test_a_judge_that_was_killed_takes_up_again(folder: Path, tmp_path: Path) -> None:
    whole = judged(folder)
    run_folder = tmp_path / "run"
    shutil.copytree(folder, run_folder, ignore=shutil.ignore_patterns("judge*"))
    program = """if True:
        import os, signal, sys
        from experiments.commands import judge
        from experiments.cli import run
        def at_most_two(store, one):
            for count, judged in enumerate(judge_run(store, one), 1):
                yield judged
                if count == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
        judge_run, judge.judge_run = judge.judge_run, at_most_two
        run(["judge", sys.argv[1], "--scorer", "random"])
    """
    killed = subprocess.run([sys.executable, "-c", program, str(run_folder)], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    written = {path: path.stat().st_mtime_ns for path in run_folder.glob("units/*/judge-random.json")}
    assert len(written) == 2
    assert judged(run_folder) == whole
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_two_judges_of_one_name_do_not_take_each_others_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, "run", ignore=shutil.ignore_patterns("judge*"))
    for place, kind in (("one", "random"), ("two", "fake")):
        Path(place).mkdir()
        Path(place, "ear.toml").write_text(f'[heads.ear]\nkind = "{kind}"\n[terms.heard_seconds]\nweight = 1.0\n')
    first = judged(Path("run"), "one/ear.toml")
    assert run(["judge", "run", "--scorer", "two/ear.toml"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "'two/ear.toml' goes by the name of 'one/ear.toml'" in said
    assert "give the file another name" in said
    assert read_table(Path("run/judgements/ear.parquet")) == first
    assert judged(Path("run"), str(tmp_path / "one" / "ear.toml")) == first
    with Path("one/ear.toml").open("a") as file:
        file.write("# heard again\n")
    assert judged(Path("run"), "./one/ear.toml") == first


def path_of(folder: Path, unit: object) -> Path:
    return folder / "units" / str(unit) / "judge-random.json"


def test_who_selects_is_told_to_be_no_judge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged(folder, "fake")
    assert "is no judge of its own choice" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--scorer", "fake"], "RUN: nowhere: no run in it"),
        (["RUN", "--scorer", "nix"], "--scorer: 'nix' is not known"),
        (["RUN"], "scorer"),
    ],
)
def test_what_cannot_be_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["judge", *(str(folder) if one == "RUN" else one for one in arguments)]) == 2
    assert message in capsys.readouterr().err


def tone(seconds: float) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 300 * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def test_measures_of_a_waveform_with_known_answers() -> None:
    silence = np.zeros(RATE // 2, np.float32)
    audio = np.concatenate([silence, tone(1.0), silence, tone(0.5), silence[: RATE // 10], tone(0.4), silence])
    audio[RATE // 2 + 1000] = 1.0
    found = measures(audio, RATE, [])
    assert found["duration"] == pytest.approx(3.5, abs=0.01)
    assert found["speech_seconds"] == pytest.approx(2.5, abs=0.05)
    assert found["pause_seconds"] == found["longest_pause"] == pytest.approx(0.5, abs=0.05)
    assert found["clipped_samples"] == 1.0
    assert np.isnan(found["seam_jump"])


def test_a_click_at_a_seam_shows() -> None:
    audio = tone(1.0)
    smooth = seam_jump(audio, [8000, 16_000])
    clicked = audio.copy()
    clicked[16_000:] += 0.5
    assert smooth < 0.2
    assert seam_jump(clicked, [8000, 16_000]) > 1.0
    assert seam_jump(clicked, [8000]) < 0.2


@pytest.mark.parametrize("audio", [np.zeros(0, np.float32), np.zeros(100, np.float32), np.zeros(RATE, np.float32)])
def test_silence_has_measures_too(audio: np.ndarray) -> None:
    found = measures(audio, RATE, [10])
    assert found["speech_seconds"] == found["pause_seconds"] == 0.0
    assert np.isnan(found["seam_jump"])
