"""How long a piece of work takes, and how much memory the process has. Knows nothing of what the work is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

_PAGE_STATUS = Path("/proc/self/status")


Row = dict[str, str | float | int]


@dataclass(frozen=True)
class Table:
    """What was found: rows that all have the same keys, which are the columns' names and say the unit."""

    name: str
    caption: str
    rows: list[Row]


@dataclass(frozen=True)
class Timing:
    """Milliseconds of several runs."""

    median_ms: float
    least_ms: float
    most_ms: float
    runs: int

    def row(self) -> Row:
        return asdict(self)


@dataclass(frozen=True)
class Memory:
    """Resident memory of this process over many calls.

    Attributes:
        first_mib, last_mib: after the first tenth of the calls, which fills caches, and after the last call.
        slope_kib: growth a call since then, by least squares.
        calls: how many were made.
    """

    first_mib: float
    last_mib: float
    slope_kib: float
    calls: int

    def row(self) -> Row:
        return asdict(self)


def timed(work: Callable[[], object], runs: int, before: Callable[[], object] = lambda: None) -> Timing:
    """Run it once to warm up, then `runs` times by the clock; `before` each run is not counted."""
    taken = []
    for _ in range(runs + 1):
        before()
        begin = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - begin))
    return Timing(statistics.median(taken[1:]), min(taken[1:]), max(taken[1:]), runs)


def watched(work: Callable[[], object], calls: int) -> Memory:
    """Resident memory while it is called so often. Raises `OSError` on systems that do not tell."""
    sizes = []
    for _ in range(calls):
        work()
        sizes.append(resident_kib())
    steady = sizes[calls // 10 :]
    slope = float(np.polyfit(np.arange(len(steady)), steady, 1)[0]) if len(steady) > 1 else 0.0
    return Memory(steady[0] / 1024, steady[-1] / 1024, slope, calls)


def resident_kib() -> int:
    """Resident memory of this process, as Linux tells it."""
    line = next(line for line in _PAGE_STATUS.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])
