"""One thread, fixed seeds, and properties that never fail by the clock."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from numpy.typing import NDArray

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs in a folder of its own, which is empty."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def spoken() -> Callable[[str], NDArray[np.float32]]:
    """The built-in voice reading a text, float32 [samples] at 24 kHz; every text is spoken once a session."""
    from engine.registry import load_engine
    from search import ChunkSearch, SpeechRequest

    search = ChunkSearch(load_engine("builtin"))

    @cache
    def speak(text: str) -> NDArray[np.float32]:
        audio = search.generate(SpeechRequest(text=text), n=1, seed=1).audio
        audio.setflags(write=False)
        return audio

    return speak
