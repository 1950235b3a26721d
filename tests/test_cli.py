"""The command, on the fakes: exit codes, where output goes, and what is left when a search breaks off."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.fake import FakeEngine, FakeVoice
from experiments.cli import run
from experiments.commands.reading import PAUSE_SECONDS
from experiments.doctor import needed, older
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SpeechRequest
from search.record import pcm16

FAKES = ("--engine", "fake", "--scorer", "fake")
TEXT = "the early train was full so we walked along the river"  # 33 frames and more: four chunks
CHUNK_SAMPLES = 80
GOLDEN = Path(__file__).parent / "golden" / "moss_local"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def say(*arguments: str) -> int:
    return run(["say", *arguments, *FAKES])


def use(monkeypatch: pytest.MonkeyPatch, voice: FakeVoice | None = None, taste: FakeTaste | None = None) -> None:
    """Let the command load fakes that misbehave."""
    monkeypatch.setattr("experiments.commands.say.load_engine", lambda *_: FakeEngine(voice))
    monkeypatch.setattr("experiments.commands.say.load_scorer", lambda *_: FakeScorer(taste))


def samples(path: str | Path) -> bytes:
    with wave.open(str(path)) as file:
        assert file.getparams()[:3] == (1, 2, FakeEngine().sample_rate)
        return file.readframes(file.getnframes())


def expected(text: str, **settings: Any) -> np.ndarray:
    return ChunkSearch(FakeEngine(), FakeScorer()).generate(SpeechRequest(text=text), **settings).audio


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


@pytest.mark.parametrize(("error", "said"), [(RuntimeError, "told to fail"), (KeyboardInterrupt, "interrupted")])
def test_what_was_committed_before_a_failure_is_kept_and_said(
    error: type[BaseException],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(monkeypatch, taste=FakeTaste(fails_at=3, error=error))
    assert say(TEXT, "-o", "out.wav", "--json") == 1
    assert samples("out.wav") == pcm16(expected(TEXT))[: 2 * 2 * CHUNK_SAMPLES]
    printed = capsys.readouterr()
    assert said in printed.err
    assert "1.60 s were committed before and are in out.wav" in printed.err
    assert "Traceback" not in printed.err
    data = json.loads(printed.out)
    assert (data["exit_code"], data["status"], data["seconds"]) == (1, "failed", 1.6)


def test_a_failure_before_the_first_commit_leaves_an_older_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.wav").write_bytes(b"older")
    use(monkeypatch, taste=FakeTaste(fails_at=1))
    assert say(TEXT, "-o", "out.wav") == 1
    assert Path("out.wav").read_bytes() == b"older"


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, taste=FakeTaste(fails_at=1))
    assert say("x", "--debug") == 1
    assert "Traceback" in capsys.readouterr().err


SLOW = """
import sys
import experiments.commands.say as command
from engine.fake import FakeEngine, FakeVoice
from experiments.cli import run
from scorers.fake import FakeScorer

command.load_engine = lambda *_: FakeEngine(FakeVoice(length=10**6, frame_seconds=0.01))
command.load_scorer = lambda *_: FakeScorer()
sys.exit(run(["say", "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 4, "-o", "out.wav"]))
"""


def test_a_real_ctrl_c() -> None:
    root = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW], env=os.environ | {"PYTHONPATH": root}, stderr=subprocess.PIPE, text=True
    )
    # A file that is only open has nothing to keep yet: 44 bytes are its header.
    while process.poll() is None and not (Path("out.wav").exists() and Path("out.wav").stat().st_size > 44):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == 1
    assert "interrupted" in complaint
    assert "Traceback" not in complaint
    kept = len(samples("out.wav")) // 2
    assert kept > 0
    assert kept % CHUNK_SAMPLES == 0
    assert f"{kept / FakeEngine().sample_rate:.2f} s were committed before and are in out.wav" in complaint


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 3)])
def test_the_frame_limit_is_an_error_only_on_demand(
    options: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, voice=FakeVoice(stuck=1.0))
    assert say("x", "--max-seconds", "1.6", "--json", *options) == code
    data = json.loads(capsys.readouterr().out)
    assert (data["exit_code"], data["status"], data["seconds"]) == (code, "hit_frame_limit", 1.6)


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


def test_help_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert run([]) == 0
    assert "say" in capsys.readouterr().out


def test_doctor_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    data = json.loads(capsys.readouterr().out)
    subjects = [finding["subject"] for finding in data["findings"]]
    assert {"Python", "CPU", "GPU", "player", "built-in voice", "built-in listener"} <= set(subjects)
    assert code == (0 if data["healthy"] else 1)
    assert all(finding["advice"] for finding in data["findings"] if finding["state"] == "missing")


def test_doctor_says_what_to_do_about_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requirements = ["no-such-package>=3", "torch>=99.1", 'no-such-judge>=1; extra == "evaluate"']
    monkeypatch.setattr("experiments.doctor.metadata.requires", lambda _: requirements)
    monkeypatch.setattr("experiments.doctor.metadata.version", _version)
    assert run(["doctor", "--json"]) == 1
    findings = {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["no-such-package"]["state"] == "missing"
    assert findings["torch"]["state"] == "missing"
    assert "older than 99.1" in findings["torch"]["found"]
    assert findings["extra 'evaluate'"]["state"] == "optional"
    assert ".[evaluate]" in findings["extra 'evaluate'"]["advice"]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("engine/builtin/model.safetensors", "model.safetensors cannot be read"),
        ("engine/builtin/config.json", "config.json cannot be read"),
        ("scorers/builtin/listener.safetensors", "listener.safetensors cannot be read"),
    ],
)
def test_doctor_opens_the_weights(
    name: str, fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("engine/builtin/model", "codec/builtin/model", "scorers/builtin/listener")
    for path in map(Path, files):
        path.parent.mkdir(parents=True)
        save_file({"weight": torch.zeros(2)}, f"{path}.safetensors")
        (path.parent / "config.json").write_text("{}")
    monkeypatch.setattr("experiments.doctor.resources.files", lambda package: Path(package).absolute())
    assert not _damaged(capsys)
    good = Path(name).read_bytes()
    Path(name).write_bytes(good[:-1])
    assert [fault in found for found in _damaged(capsys)] == [True]
    Path(name).unlink()
    assert [f"no {Path(name).name}" in found for found in _damaged(capsys)] == [True]


def _damaged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is said of weights that are missing."""
    run(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [
        finding["found"]
        for finding in findings
        if finding["subject"].startswith("built-in") and finding["state"] == "missing"
    ]


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    if name.startswith("no-such"):
        raise PackageNotFoundError(name)
    return "2.13.0+cpu"


def test_requirements_and_versions() -> None:
    assert needed("hibari-tts>=0.2.1") == ("hibari-tts", "0.2.1", "")
    assert needed("soxr>=0.5; extra == 'train'") == ("soxr", "0.5", "train")
    assert older("2.13.0+cpu", "2.14")
    assert not older("2.13.0+cpu", "2.6")
    assert not older("4.0", "")


def test_verify_accepts_the_golden_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "moss", str(GOLDEN), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"]
    assert all(check["passed"] for check in data["checks"])


def test_verify_names_the_tensor_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = shutil.copytree(GOLDEN, tmp_path / "bundle")
    tensors = load_file(bundle / "golden.safetensors")
    name = next(name for name in sorted(tensors) if name.endswith("guided_audio_logits"))
    save_file(tensors | {name: tensors[name] + 0.01}, bundle / "golden.safetensors")
    assert run(["verify", "moss", str(bundle)]) == 1
    printed = capsys.readouterr()
    assert f"tensors differ: {name}" in printed.err
    assert "beyond tolerance" in printed.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["parrot", "."], "known are moss"),
        (["moss", "no/such"], "no/such is not a folder"),
        (["moss", "."], "config.json"),
    ],
)
def test_verify_refuses_what_is_no_bundle(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", *arguments]) == 2
    assert complaint in capsys.readouterr().err
