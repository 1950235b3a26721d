"""`say` on the fakes: what is left when a search breaks off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.fake import FakeEngine
from scorers.fake import FakeTaste
from search.record import pcm16
from tests.fake_say import CHUNK_SAMPLES, TEXT, expected, samples, say, use

pytestmark = pytest.mark.usefixtures("own_folder")


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
import signal
import sys
import experiments.commands.say as command
from engine.fake import FakeEngine, FakeVoice
from experiments.cli import run
from scorers.fake import FakeScorer

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs are without
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
