"""How steps are recorded: the order of things around a capture, with a stand-in for the GPU."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.moss import graphs
from engine.moss.graphs import CudaGraphs, Unrecorded, bucket


class Stand:
    """Notes what is asked of `torch.cuda`. While a capture is on, work is noted and not done."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.captured: list[dict[str, Any]] = []
        self.error: str | None = None

    def work(self) -> None:
        self.noted.append("work")

    def rewind(self) -> None:
        self.noted.append("rewind")

    @contextmanager
    def graph(self, _graph: object, **settings: Any) -> Iterator[None]:
        self.noted.append("begin")
        assert graphs._CAPTURING.locked()
        self.captured.append(settings)
        yield
        if self.error:
            raise RuntimeError(self.error)
        self.noted.append("end")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    stand = Stand()

    @contextmanager
    def entered(*_: object) -> Iterator[None]:
        yield

    def stream(device: object) -> SimpleNamespace:
        return SimpleNamespace(device=device, wait_stream=lambda _: stand.noted.append("wait"))

    pools = iter(range(9))
    doings: dict[str, Callable[..., Any]] = {
        "graph_pool_handle": lambda: (0, next(pools)),
        "Stream": stream,
        "current_stream": stream,
        "stream": entered,
        "device": entered,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: stand.noted.append("replay")),
        "graph": stand.graph,
    }
    for name, doing in doings.items():
        monkeypatch.setattr(torch.cuda, name, doing)
    return stand


def test_a_step_is_warmed_up_and_undone_then_captured_and_replayed(stand: Stand) -> None:
    recorder = CudaGraphs(torch.device("cuda"))
    replay = recorder.place()(stand.work, stand.rewind)
    assert stand.noted == ["wait", *["work", "rewind"] * 3, "wait", "begin", "work", "end"]
    assert stand.captured[0]["capture_error_mode"] == "thread_local"
    assert not graphs._CAPTURING.locked()
    assert recorder.seconds > 0
    replay()
    assert stand.noted[-1] == "replay"


def test_recordings_of_a_place_share_memory_and_those_of_two_places_do_not(stand: Stand) -> None:
    recorder = CudaGraphs(torch.device("cuda"))
    one, other = recorder.place(), recorder.place()
    for record in (one, one, other):
        record(stand.work, stand.rewind)
    pools = [settings["pool"] for settings in stand.captured]
    assert pools[0] == pools[1] != pools[2]


def test_without_a_capture_the_step_itself_runs_and_the_log_says_so_once(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.error = "operation not permitted when stream is capturing"
    recorder = CudaGraphs(torch.device("cuda"))
    with caplog.at_level(logging.WARNING):
        replays = [recorder.place()(stand.work, stand.rewind) for _ in range(2)]
    assert [record.getMessage() for record in caplog.records] == [
        f"no CUDA graph could be captured, frames are made without one, more slowly: {stand.error}"
    ]
    assert replays == [stand.work] * 2
    assert not graphs._CAPTURING.locked()


def test_unrecorded_is_the_step_itself() -> None:
    def step() -> None:
        raise AssertionError("nothing runs when it is recorded")

    assert Unrecorded().place()(step, step) is step


@pytest.mark.parametrize(("length", "least", "expected"), [(0, 32, 32), (32, 32, 32), (33, 32, 64), (700, 256, 1024)])
def test_buckets(length: int, least: int, expected: int) -> None:
    assert bucket(length, least) == expected
