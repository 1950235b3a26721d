"""The ten laws on the fakes: bitwise, for codes and for latents."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from codec.fake import FakeCodec
from engine.fake import FakeEngine, FakeVoice
from scorers.fake import FakeScorer, FakeTaste
from search import SpeechRequest
from tests.contracts import CodecLaws, Laws, ScorerLaws, Subject

REQUESTS = (
    SpeechRequest("one two three four five six seven", id="long"),
    SpeechRequest("hm", id="short"),
    SpeechRequest("one two three", id="middle"),
)


class TestCodes(Laws):
    @pytest.fixture
    def subject(self) -> Subject:
        return Subject(FakeEngine(), FakeScorer(), REQUESTS)


class TestLatents(Laws):
    @pytest.fixture
    def subject(self) -> Subject:
        return Subject(FakeEngine(FakeVoice(width=3)), FakeScorer(), REQUESTS)


class TestRowsThatGetStuck(Laws):
    """Some rows never end, and limits differ by request: searches end at their limit, and on either kind of winner."""

    @pytest.fixture
    def subject(self) -> Subject:
        scorer = FakeScorer(FakeTaste(prefix_wer=(0.5,)))
        return Subject(FakeEngine(FakeVoice(stuck=0.1)), scorer, REQUESTS, max_seconds=None)


class TestFakeCodec(CodecLaws):
    @pytest.fixture
    def codec(self) -> FakeCodec:
        return FakeCodec(hop=4)

    @pytest.fixture
    def pool(self) -> Tensor:
        return torch.randint(0, 32, (50, 3))


class TestFakeScorer(ScorerLaws):
    @pytest.fixture
    def scorer(self) -> FakeScorer:
        return FakeScorer()

    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        return REQUESTS

    @pytest.fixture
    def pcm(self) -> Tensor:
        return torch.randint(-3000, 3000, (400,)) / 2.0**15

    @pytest.fixture
    def rate(self) -> int:
        return 100
