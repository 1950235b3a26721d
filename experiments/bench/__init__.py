"""Benchmarks: what things take on this machine, as tables. Each kind has one module here.

This package does not know how results are shown, and judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.bench.scorers import FULL, QUICK, Plan, bench_scorers
from experiments.bench.timing import Table

KINDS: dict[str, Callable[[Sequence[str], str, Plan, Callable[[str], object]], list[Table]]] = {
    "scorers": bench_scorers,
}


def bench(
    kind: str, specs: Sequence[str], *, device: str, quick: bool, note: Callable[[str], object] = lambda _: None
) -> list[Table]:
    """Measure one kind of thing; `quick` takes few runs, to see that it works.

    Raises:
        ValueError: the kind is unknown, or nothing of `specs` can be measured.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is unknown; known are {', '.join(sorted(KINDS))}")
    return KINDS[kind](specs, device, QUICK if quick else FULL, note)


__all__ = ["KINDS", "Table", "bench"]
