"""`chunksearch score`: any file that a user has, and every complaint before anything is loaded."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from numpy.typing import NDArray

from experiments.cli import run

TEXT = "The kettle is on the stove."
Speak = Any


@pytest.fixture(scope="module")
def audio(spoken: Speak) -> NDArray[np.float32]:
    return np.asarray(spoken(TEXT))


def written(path: Path, audio: NDArray[np.float32], rate: int = 24_000) -> str:
    soundfile.write(path, audio, rate)
    return str(path)


def scored(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["score", *arguments, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_one_file_is_one_object(tmp_path: Path, audio: NDArray[np.float32], capsys: pytest.CaptureFixture[str]) -> None:
    found = scored(capsys, written(tmp_path / "a.wav", audio), "--text", TEXT)
    assert found["transcript"] == "The kettle is on the stove"
    assert found["prefix_wer"] == 0.0
    assert set(found["heads"]) == {"listener", "match", "pace", "end", "progress", "prefix_wer"}
    assert found["reward"] == pytest.approx(found["heads"]["listener"])
    wrong = scored(capsys, str(tmp_path / "a.wav"), "--text", "The kettle is on the table, my dear.")
    assert wrong["prefix_wer"] > 0.2
    assert wrong["reward"] < found["reward"] - 0.2


@pytest.mark.parametrize(
    ("name", "rate", "channels"),
    [
        ("a.flac", 24_000, 1),
        ("a.mp3", 24_000, 1),
        ("a.ogg", 48_000, 2),
        ("a.wav", 44_100, 2),
        ("a.wav", 16_000, 1),
        ("a.flac", 11_025, 1),
    ],
)
def test_any_format_rate_and_channels(
    tmp_path: Path, audio: NDArray[np.float32], capsys: pytest.CaptureFixture[str], name: str, rate: int, channels: int
) -> None:
    other = soxr.resample(audio, 24_000, rate)
    path = written(tmp_path / name, np.stack([other] * channels, 1), rate)
    assert scored(capsys, path, "--text", TEXT)["prefix_wer"] == 0.0


def test_several_files_are_candidates(
    tmp_path: Path, audio: NDArray[np.float32], capsys: pytest.CaptureFixture[str]
) -> None:
    reward = tmp_path / "mine.toml"
    reward.write_text('[heads.listener]\n[terms.listener]\nweight = 1.0\nnormalise = "minmax"\n')
    cut = written(tmp_path / "cut.wav", audio[: len(audio) // 2])
    whole = written(tmp_path / "whole.flac", np.stack([audio] * 2, 1))
    found = scored(capsys, cut, whole, "--text", TEXT, "--scorer", str(reward))
    assert found["best"] == whole
    assert [one["reward"] for one in found["files"]] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.wav", None, "is no file"),
        ("text.wav", b"not audio at all", "cannot be read"),
        ("cut.flac", b"fLaC\0\0", "cannot be read"),
    ],
)
def test_files_that_are_no_audio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert run(["score", str(path), "--text", TEXT]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert name in complaint
    assert "Traceback" not in complaint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", " "], "--text: .*nothing to say"),
        (["--text", TEXT, "--scorer", "nix"], "--scorer: 'nix' is not known; allowed are balanced, builtin"),
        (["--text", TEXT, "--scorer", "nix.toml"], "nix.toml: No such file"),
        (["--text", TEXT, "--device", "cuda:9"], "--device: 'cuda:9' is not there"),
        ([], "text"),
    ],
)
def test_what_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    path = written(tmp_path / "a.wav", np.zeros(2400, np.float32))
    assert run(["score", path, *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_an_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", written(tmp_path / "a.wav", np.zeros(0, np.float32)), "--text", TEXT]) == 2
    assert "has no samples" in capsys.readouterr().err


def test_silence_is_no_speech(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = scored(capsys, written(tmp_path / "a.wav", np.zeros(48_000, np.float32)), "--text", TEXT)
    assert found["transcript"] == ""
    assert found["prefix_wer"] == 1.0
