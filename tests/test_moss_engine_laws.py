"""The laws of engines on a whole tiny voice: texts, an instruction and a recording, guidance, and the stereo codec.

Sound of the codec agrees within rounding, however it is cut: its own laws say by how much.
"""

import numpy as np
import pytest

from engine.registry import load_engine
from scorers.fake import FakeScorer, FakeTaste
from search import Sampling, SpeechRequest
from search.protocols import Engine
from tests.contracts import Laws, Subject
from tests.tiny_voice import tiny_voice

pytest.importorskip("tokenizers", reason="needs the package tokenizers: pip install tokenizers")


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return load_engine(f"moss:{tiny_voice(tmp_path_factory.mktemp('laws') / 'voice', stop=0.03)}")


class TestWholeVoice(Laws):
    @pytest.fixture
    def subject(self, voice: Engine) -> Subject:
        pcm = np.sin(np.arange(120) / 4.0).astype(np.float32)
        requests = [
            SpeechRequest("Hello there, how are you? " * 2, id="a", instruction="softly", language="English"),
            SpeechRequest("Oh.", id="b", instruction="loud", reference=(pcm, voice.sample_rate)),
            SpeechRequest("A (sigh) word more.", id="c"),
        ]
        return Subject(
            voice,
            FakeScorer(FakeTaste(chance=True)),  # the other one hears every rounding
            requests,
            max_seconds=1.2,
            pcm_tolerance=2e-5,
            examples=2,
            shrink=False,
            sampling=Sampling(guidance=2.0, repetition_penalty=1.1),
        )
