"""`say` on the fakes: what is spoken and printed, and input that is refused."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.fake import FakeEngine, FakeVoice
from experiments.cli import run
from experiments.commands.reading import PAUSE_SECONDS
from scorers.fake import FakeTaste
from search.record import pcm16
from tests.fake_say import CHUNK_SAMPLES, FAKES, TEXT, expected, samples, say, use

pytestmark = pytest.mark.usefixtures("own_folder")


def test_say_writes_what_the_library_generates(capsys: pytest.CaptureFixture[str]) -> None:
    assert say(TEXT, "-n", "4", "--beam-width", "2", "--chunk-ms", "480", "--seed", "5", "-o", "out.wav") == 0
    assert samples("out.wav") == pcm16(expected(TEXT, n=4, beam_width=2, chunk_frames=6, seed=5))
    printed = capsys.readouterr().out
    assert "real-time factor" in printed
    assert f"{len(samples('out.wav')) // 2} samples" in printed  # the fake listener's transcript


def test_json_is_the_last_line_and_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert say(TEXT, "--json") == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    data = json.loads(printed.out)
    assert (data["exit_code"], data["status"], data["output"]) == (0, "complete", "speech.wav")
    assert data["seconds"] == len(samples("speech.wav")) / 2 / data["sample_rate"]
    (sentence,) = data["sentences"]
    assert sentence["text"] == TEXT
    assert sentence["performance"]["search_rtf"] > 0
    assert "real-time factor" in printed.err


def test_sentences_are_searches_of_their_own_with_a_pause_between() -> None:
    assert say("One two. Three four five!", "-o", "out.wav") == 0
    pause = np.zeros(round(PAUSE_SECONDS * FakeEngine().sample_rate), np.float32)
    assert samples("out.wav") == pcm16(np.concatenate([expected("One two."), pause, expected("Three four five!")]))


def test_text_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeffOne\ntwo".encode())))
    assert say("-", "-o", "out.wav", "--json") == 0
    pause = np.zeros(round(PAUSE_SECONDS * FakeEngine().sample_rate), np.float32)
    assert samples("out.wav") == pcm16(np.concatenate([expected("One"), pause, expected("two")]))


def test_marks_that_make_no_tag_are_spoken() -> None:
    assert say("2 < 3 and <b c> 1 <- 2", "-o", "out.wav") == 0


@pytest.mark.parametrize("data", [b"\x89PNG\r\n", b"RIFF\0\0"])
def test_standard_input_that_is_no_text(
    data: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert say("-", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith("TEXT: ")
    assert not list(Path().iterdir())


def test_raw_audio_on_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert say(TEXT, "-o", "-") == 0
    printed = capfdbinary.readouterr()
    assert printed.out == pcm16(expected(TEXT))
    assert b"real-time factor" in printed.err
    assert not list(Path().iterdir())


def test_raw_audio_is_written_as_it_becomes_final(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    use(monkeypatch, taste=FakeTaste(fails_at=3))
    assert say(TEXT, "-o", "-") == 1
    assert capfdbinary.readouterr().out == pcm16(expected(TEXT))[: 2 * 2 * CHUNK_SAMPLES]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["  "], "TEXT: nothing to say"),
        (["ab\udcff"], "TEXT: not valid UTF-8 at character 3"),
        (["a\0"], "TEXT: a zero byte at character 2"),
        (["<speak>Hello.</speak>"], "TEXT: tag <speak> would be read aloud"),
        (["Wait. <break\ntime='500ms' /> Go."], "TEXT: tag <break time='500ms' /> would be read aloud"),
        (["x", "-n", "0"], "-n: 0 is out of range; allowed is 1 to 64"),
        (["x", "--beam-width", "9"], "--beam-width: 9"),
        (["x", "--chunk-ms", "500"], "--chunk-ms: 500 is not a whole number of frames of 80 ms; nearest: 480 and 560"),
        (["x", "--chunk-ms", "20"], "nearest: 80"),
        (["x", "--chunk-ms", "-80"], "nearest: 80"),
        (["x", "--chunk-ms", "nan"], "--chunk-ms: nan is out of range; allowed is 80 to 80000000"),
        (["x", "--chunk-ms", "inf"], "--chunk-ms: inf is out of range; allowed is 80 to 80000000"),
        (["x", "--chunk-ms", "160000000"], "--chunk-ms: 160000000 is out of range; allowed is 80 to 80000000"),
        (["x", "--max-lag", "-1"], "--max-lag: -1.0"),
        (["x", "--max-seconds", "61"], "--max-seconds: 61.0"),
        (["x", "--temperature", "nan"], "--temperature: nan"),
        (["x", "--temperature", "warm"], "--temperature"),
        (["x", "--seed", "-1"], "--seed: -1"),
        (["x", "--no-such-option"], "--no-such-option"),
        ([], "TEXT"),
        (["x", "-o", "out.mp3"], "-o: 'out.mp3' does not end in .wav"),
        (["x", "-o", "no/such/out.wav"], "-o: folder 'no/such' does not exist"),
        (["x", "-o", "."], "-o: '.' is a folder"),
        (["x", "-o", "-", "--json"], "-o: standard output cannot carry both"),
        (["x", "--engine", "parrot"], "--engine: 'parrot' is not known; allowed are builtin, fake"),
        (["x", "--device", "warp"], "--device: 'warp' is no torch device"),
        (["x", "--scorer-device", "cuda:99"], "--scorer-device: 'cuda:99' is not there"),
        (["x", "--scorer", "judge"], "--scorer: 'judge' is not known; allowed are balanced, builtin"),
    ],
)
def test_bad_input_names_the_option_and_what_is_allowed(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["say", *FAKES, *arguments])
    printed = capsys.readouterr()
    assert code == 2
    assert complaint in printed.err
    assert "Traceback" not in printed.err
    assert not list(Path().iterdir())


def test_errors_are_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["say", "x", "--no-such-option", "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert (data["exit_code"], data["status"]) == (2, "failed")
    assert "--no-such-option" in data["error"]


def test_an_output_that_cannot_be_written_fails_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.commands.say.load_engine", lambda *_: pytest.fail("loaded an engine"))
    assert say("x", "-o", f"{'long' * 100}.wav") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_text_that_the_engine_refuses_only_when_it_opens_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch)

    def refuse(*_: object) -> None:
        raise ValueError("text: 'x' cannot be spoken")

    monkeypatch.setattr(FakeEngine, "open", refuse)
    assert say("x") == 2
    assert "TEXT: 'x' cannot be spoken; nothing was committed" in capsys.readouterr().err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 3)])
def test_the_frame_limit_is_an_error_only_on_demand(
    options: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, voice=FakeVoice(stuck=1.0))
    assert say("x", "--max-seconds", "1.6", "--json", *options) == code
    data = json.loads(capsys.readouterr().out)
    assert (data["exit_code"], data["status"], data["seconds"]) == (code, "hit_frame_limit", 1.6)


def test_a_search_that_could_not_judge_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, taste=FakeTaste(script=((math.nan,),)))
    assert say("x", "-n", "3") == 0
    assert "nothing was judged, so nothing was chosen" in capsys.readouterr().err
    assert say("x", "-n", "1") == 0
    assert "nothing was judged" not in capsys.readouterr().err
