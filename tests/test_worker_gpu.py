"""Heads on a GPU, in a thread: pinned audio, a CUDA stream of their own, and an engine that captures graphs beside."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial

import pytest
import torch
from torch import Tensor

from scorers.fake import FakeScorer, FakeScorerStream
from scorers.placed import Here
from scorers.registry import load_head
from scorers.worker import InThread
from search.protocols import Scores
from search.request import SpeechRequest
from tests.test_worker import searched
from tests.troubled import hear, opened, outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and a torch that was built for it"),
]


class Observed(FakeScorer):
    """A head on the GPU that notes where it is called."""

    def __init__(self) -> None:
        super().__init__(device="cuda")
        self.streams: set[int] = set()
        self.pinned: list[bool] = []

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> FakeScorerStream:
        return ObservedStream(self, requests, n, sample_rate, hop)


class ObservedStream(FakeScorerStream):
    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        head = self._scorer
        assert isinstance(head, Observed)
        head.streams.add(torch.cuda.current_stream().cuda_stream)
        head.pinned.append(pcm.is_pinned())
        return super().score(pcm, lengths, finished)


def test_a_head_has_a_stream_of_its_own_and_gets_pinned_audio() -> None:
    head, plain = Observed(), opened(Here(FakeScorer()))
    with closing(InThread(lambda: head)) as away:
        stream = opened(away)
        for step in range(3):
            hear(stream, step)
            hear(plain, step)
            assert outcome(stream) == outcome(plain)
            for one in (stream, plain):
                one.fork(torch.tensor([[2, 2, 0, 1]]))
                one.commit(torch.tensor([1]))
    assert head.pinned == [True] * 3
    assert len(head.streams) == 1
    assert torch.cuda.default_stream().cuda_stream not in head.streams


@pytest.mark.parametrize("kind", ["fake", "listener"])
def test_a_search_with_a_head_on_the_gpu_in_a_thread_is_the_same_search(kind: str) -> None:
    make = partial(load_head, kind, {}, "cuda")
    with closing(InThread(make)) as away:
        assert searched(away, 2, "builtin") == searched(Here(make()), 2, "builtin")


def test_graphs_can_be_captured_while_a_head_works() -> None:
    """Bug report B9: work of another thread made the capture of a graph fail."""
    with closing(InThread(lambda: FakeScorer(device="cuda"))) as away:
        stream = opened(away)
        hear(stream)
        outcome(stream)
        number, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
        for step in range(20):
            hear(stream, step, frames=100)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                doubled = number * 2
            assert outcome(stream)[0] == "scores"
            number.fill_(step)
            graph.replay()
            assert doubled.item() == 2 * step
