"""How far a sweep is: a bar with the time left on a terminal, else a line a minute. Knows nothing of units."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_SECONDS = 60.0


class SweepProgress:
    """Context manager; `ended` counts a unit. `doing` is what is done to units, for people."""

    def __init__(
        self, console: Console, total: int, clock: Callable[[], float] = time.monotonic, doing: str = "speaking"
    ) -> None:
        self._console, self._total, self._clock, self._doing = console, total, clock, doing
        self._ended = self._failed = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(doing, total=total)

    def __enter__(self) -> Self:
        self._begin = self._told = self._clock()
        if self._console.is_terminal:  # elsewhere a bar may leave empty lines, though it is disabled
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def ended(self, *, failed: bool) -> None:
        """One more unit is done, or has failed."""
        self._ended += 1
        self._failed += failed
        note = f"{self._doing}, {self._failed} failed" if self._failed else self._doing
        self._bar.update(self._task, advance=1, description=note)
        now = self._clock()
        if not self._console.is_terminal and now - self._told >= LINE_SECONDS:
            self._told = now
            left = (now - self._begin) / self._ended * (self._total - self._ended)
            self._console.print(f"{self._ended} of {self._total} units, {self._failed} failed, {_minutes(left)} left")


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
