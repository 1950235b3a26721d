"""`say --play`: which players are tried, and what they are given."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.fake import FakeEngine
from search.record import pcm16
from tests.fake_say import TEXT, expected, samples, say

pytestmark = pytest.mark.usefixtures("own_folder")


def player(monkeypatch: pytest.MonkeyPatch, script: str, **others: str) -> None:
    """Make a program called aplay, and the others, the only players there are."""
    folder = Path("bin")
    folder.mkdir()
    for name, text in {"aplay": script, **others}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    for name in ("cat", "sh"):
        (folder / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(folder.absolute()))


def test_play_feeds_a_player_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    player(monkeypatch, 'echo "$@" > arguments; cat > played')
    assert say(TEXT, "--play") == 0
    assert Path("played").read_bytes() == pcm16(expected(TEXT))
    assert f"-r {FakeEngine().sample_rate}" in Path("arguments").read_text()
    assert not Path("speech.wav").exists()


def test_a_player_that_fails_is_reported_and_the_audio_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    player(monkeypatch, "echo no sound card >&2; exit 1")
    assert say(TEXT, "--play", "-o", "out.wav") == 1
    printed = capsys.readouterr().err
    assert "--play: aplay could not play the audio: no sound card\n" in printed  # and no word of a search cut short
    assert "audio: out.wav" in printed
    assert samples("out.wav") == pcm16(expected(TEXT))


@pytest.mark.parametrize("refusal", ["exit 1", "cat > /dev/null; exit 1"])  # at once, or when all has been sent
def test_the_next_player_plays_everything_where_one_fails(refusal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    player(monkeypatch, "cat > played", paplay=refusal)
    assert say(TEXT, "--play") == 0
    assert Path("played").read_bytes() == pcm16(expected(TEXT))


def test_a_player_of_files_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    player(monkeypatch, "exit 1", afplay='cat "$1" > played.wav')
    assert say(TEXT, "--play") == 0
    assert samples("played.wav") == pcm16(expected(TEXT))


def test_every_player_that_failed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    player(monkeypatch, "echo no sound card >&2; exit 1", paplay="echo connection refused >&2; exit 1")
    assert say(TEXT, "--play") == 1
    printed = capsys.readouterr().err
    assert "paplay could not play the audio: connection refused" in printed
    assert "aplay could not play the audio: no sound card" in printed


def test_play_without_a_player(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert say(TEXT, "--play") == 2
    assert "looked for paplay, aplay, ffplay, afplay, play" in capsys.readouterr().err
