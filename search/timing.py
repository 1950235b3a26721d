"""How long a piece of work took, on the clock and on its device. Knows nothing about what the work was."""

from __future__ import annotations

import time
from types import TracebackType

import torch


class Stopwatch:
    """Times the block it surrounds: `wall` is the clock, `device` is what the device itself was busy for, in seconds.

    On a CPU both are the same. On a GPU the block's kernels are waited for, or the clock would only see their launch.
    """

    def __init__(self, device: torch.device) -> None:
        self.wall = self.device = 0.0
        self._cuda = device if device.type == "cuda" else None

    def __enter__(self) -> Stopwatch:
        self._begin = time.perf_counter()
        if self._cuda is not None:
            self._events = [_event(), _event()]
            self._events[0].record(torch.cuda.current_stream(self._cuda))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cuda is not None and error is None:
            self._events[1].record(torch.cuda.current_stream(self._cuda))
            self._events[1].synchronize()
            self.device = self._events[0].elapsed_time(self._events[1]) / 1000
        self.wall = time.perf_counter() - self._begin
        if self._cuda is None:
            self.device = self.wall


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
