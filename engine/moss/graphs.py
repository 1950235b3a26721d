"""Records a frame step for replay: as a CUDA graph, or as it is where there is none.

A graph replays the kernels of one run, on the same addresses, whatever the host would have decided meanwhile: whoever
records must keep all that changes in tensors that stay where they are, random numbers too. It does not know what the
step computes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

Replay = Callable[[], None]
"""Runs what was recorded, once more."""
Record = Callable[[Callable[[], None], Replay], Replay]
"""From a step, and what undoes whatever steps have done since it was made, to the replay of the step."""

_WARM_UPS = 3
_CAPTURING = threading.Lock()
_LOG = logging.getLogger(__name__)


class Recorder(Protocol):
    """Makes recordings, and counts the seconds that they take."""

    @property
    def seconds(self) -> float:
        """What all recordings so far took."""

    def place(self) -> Record:
        """Of steps that never run at the same time: their recordings may share memory."""


class Unrecorded:
    """Every replay is the step itself."""

    seconds = 0.0

    def place(self) -> Record:
        return lambda step, _rewind: step


class CudaGraphs:
    """Captures graphs on a stream of its own, one at a time in the whole process, while other threads may work.

    Where a graph cannot be captured, the step runs without one, which the log says once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, 0.0
        self._warned = False

    def place(self) -> Record:
        pool = torch.cuda.graph_pool_handle()
        return lambda step, rewind: self._captured(step, rewind, pool)

    def _captured(self, step: Callable[[], None], rewind: Replay, pool: Any) -> Replay:
        begin = time.perf_counter()
        with _CAPTURING, torch.cuda.device(self.device):
            stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            _warmed(step, rewind, stream)
            graph = torch.cuda.CUDAGraph()
            try:
                # "thread_local": what other threads do on the device meanwhile, scorers say, is none of our business.
                with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                    step()
            except RuntimeError as error:
                self._warn(error)
                return step
            finally:
                self.seconds += time.perf_counter() - begin
        return graph.replay

    def _warn(self, error: RuntimeError) -> None:
        if not self._warned:
            _LOG.warning("no CUDA graph could be captured, frames are made without one, more slowly: %s", error)
        self._warned = True


def _warmed(step: Callable[[], None], rewind: Replay, stream: torch.cuda.Stream) -> None:
    """Run the step where it is going to be captured: libraries set up their workspaces in the first runs."""
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            step()
            rewind()
    current.wait_stream(stream)


def bucket(length: int, least: int) -> int:
    """The smallest `least * 2 ** k` that is at least `length`: few lengths are few recordings."""
    while least < length:
        least *= 2
    return least
