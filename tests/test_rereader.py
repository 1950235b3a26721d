"""Scorers that hear everything again at every step keep the laws of all scorers, but for the cost."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from scorers.heads import Clip, Judgement, Term
from scorers.rereader import Rereader, Said
from search import SpeechRequest
from tests.contracts import ScorerLaws


class Hash:
    """A head that is moved by every sample, by the end, and by the request."""

    name, device, terms = "hash", torch.device("cpu"), (Term("hash"), Term("samples"))

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate

    def prepare(self, request: SpeechRequest) -> int:
        return len(request.text)

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        return [Judgement({"hash": self._hash(clip), "samples": float(len(clip.pcm))}) for clip in clips]

    @staticmethod
    def _hash(clip: Clip) -> float:
        weights = np.sin(np.arange(len(clip.pcm)) + clip.prepared + clip.finished)
        return float((clip.pcm.astype(np.float64) * weights).sum())


class Rows(ScorerLaws):
    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        return [SpeechRequest(text) for text in ("one two three", "hm", "four")]

    @pytest.fixture
    def pcm(self) -> Tensor:
        return torch.randint(-3000, 3000, (400,)) / 2.0**15

    @pytest.fixture
    def rate(self) -> int:
        return 100

    def test_law_9_work_does_not_grow(self) -> None:  # type: ignore[override]
        """It does, by declaration."""
        assert Rereader(Hash(100)).rereads


class TestOwnRate(Rows):
    @pytest.fixture
    def scorer(self) -> Rereader:
        return Rereader(Hash(100))


class TestAnotherRate(Rows):
    tolerance = 1e-6

    @pytest.fixture
    def scorer(self) -> Rereader:
        return Rereader(Hash(160))


def test_the_trunk_is_stored_once_and_heads_know_what_is_final() -> None:
    seen: list[Clip] = []

    class Watched(Hash):
        def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
            seen.extend(clips)
            return super().judge(clips)

    stream = Rereader(Watched(100)).open([SpeechRequest("one")], 3, 100, 10)
    for step in range(4):
        del seen[:]
        stream.score(torch.full((3, 50), float(step)), torch.full((3,), 50), torch.zeros(3, dtype=torch.bool))
        assert [clip.committed for clip in seen] == [50 * step] * 3
        assert [len(clip.pcm) for clip in seen] == [50 * step + 50] * 3
        stream.fork(torch.zeros(1, 3, dtype=torch.int64))
        stream.commit(torch.tensor([5]))
        state = stream._state
        assert isinstance(state, Said)
        assert state.tail.numel() == 0
        assert len(state.trunks[0]) == 50 * step + 50
    stream.close()
    stream.close()
    with pytest.raises(RuntimeError, match="hash: the stream is closed"):
        stream.judge(torch.zeros(3, dtype=torch.bool))


def test_rows_are_not_judged_before_they_say_something() -> None:
    stream = Rereader(Hash(100)).open([SpeechRequest("one")], 2, 100, 10)
    scores = stream.score(torch.zeros(2, 10), torch.tensor([0, 10]), torch.tensor([False, False]))
    assert scores.reward.isnan().tolist() == [True, False]
    assert scores.notes[0] == {"not_judged": "nothing heard yet"}
