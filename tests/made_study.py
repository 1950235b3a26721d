"""Runs that never ran: rows as the tables of a sweep have them, with values that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.statistics import Results
from experiments.sweep.study import SETTINGS

Values = Callable[[Mapping[str, Any], int, int], Mapping[str, Any]]
"""(settings, prompt, seed) to columns."""


def configuration(name: str, **settings: Any) -> dict[str, Any]:
    """One configuration; what is not given is what a search has by itself."""
    usual = {"n": 1, "beam_width": 1, "chunk_ms": "800", "temperature": 1.0, "guidance": None}
    return {"configuration": name, "engine": "fake", "scorer": "fake", **dict.fromkeys(SETTINGS), **usual, **settings}


def candidates(*counts: int, **settings: Any) -> list[dict[str, Any]]:
    """n1, n2, ... that differ in N alone."""
    return [configuration(f"n{n}", n=n, **settings) for n in counts]


def made(configurations: Sequence[dict[str, Any]], prompts: int, seeds: int, values: Values, **about: Any) -> Results:
    """A run of these configurations with what `values` gives for every unit."""
    rows = []
    for one in configurations:
        for seed in range(seeds):
            for prompt in range(prompts):
                identity = {"prompt": f"p{prompt}", "text": "It rains.", "seed": seed, "status": "complete"}
                unit = f"{one['configuration']}-{prompt}-{seed}"
                rows.append({"unit": unit, **one, **identity, "seconds": 2.0, **values(one, prompt, seed)})
    return Results(rows, **about)
