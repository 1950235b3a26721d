"""The ten laws on what ships: the built-in voice, its codec and its listener, with their trained weights.

Codes are compared bitwise; PCM and scores to a tolerance, since one long product and several short ones round apart.
"""

from collections.abc import Sequence

import pytest
from torch import Tensor

from codec.builtin import BuiltinCodec
from engine.registry import load_engine
from scorers.registry import load_scorer
from search import SpeechRequest
from search.protocols import Codec, Engine, Scorer
from tests.contracts import CodecLaws, Laws, ScorerLaws, Subject

REQUESTS = (
    SpeechRequest("The tall man walks to the old house with a dog.", id="long"),
    SpeechRequest("Oh.", id="short"),
    SpeechRequest("Come back soon.", id="middle"),
)


@pytest.fixture(scope="module")
def voice() -> Engine:
    return load_engine("builtin")


@pytest.fixture(scope="module")
def listener() -> Scorer:
    return load_scorer("listener")


def subject_of(voice: Engine, listener: Scorer) -> Subject:
    return Subject(
        voice,
        listener,
        REQUESTS,
        max_seconds=1.0,
        pcm_tolerance=1e-5,
        score_tolerance=1e-3,
        examples=2,
        shrink=False,
    )


class TestVoice(Laws):
    @pytest.fixture
    def subject(self, voice: Engine, listener: Scorer) -> Subject:
        return subject_of(voice, listener)


class TestCodec(CodecLaws):
    tolerance = 1e-5
    examples = 5

    @pytest.fixture
    def codec(self) -> Codec:
        return BuiltinCodec.load()

    @pytest.fixture
    def pool(self, voice: Engine, listener: Scorer) -> Tensor:
        return subject_of(voice, listener).pool()


class TestListener(ScorerLaws):
    hop = 1920
    tolerance = 1e-3
    examples = 5

    @pytest.fixture
    def scorer(self, listener: Scorer) -> Scorer:
        return listener

    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        return REQUESTS

    @pytest.fixture
    def pcm(self, voice: Engine, listener: Scorer) -> Tensor:
        return voice.codec.decode(subject_of(voice, listener).pool()[:60])

    @pytest.fixture
    def rate(self) -> int:
        return 24_000
