"""The command `say` on the fakes, as the tests of the command call it. Knows no expectation."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.fake import FakeEngine, FakeVoice
from experiments.cli import run
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SpeechRequest

FAKES = ("--engine", "fake", "--scorer", "fake")
TEXT = "the early train was full so we walked along the river"  # 33 frames and more: four chunks
CHUNK_SAMPLES = 80


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
