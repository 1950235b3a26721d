"""Where a command writes: results, notes and progress. Keeps standard output clean when a program reads it.

Knows nothing about what is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console


@dataclass(frozen=True)
class Terminal:
    """The two consoles of a command.

    Attributes:
        results: standard output; standard error where standard output carries JSON or audio.
        notes: standard error: progress, warnings, where files went.
    """

    results: Console
    notes: Console

    @staticmethod
    def opened(*, output_is_data: bool) -> Terminal:
        """Consoles for this process. `output_is_data`: a program reads standard output."""
        return Terminal(Console(stderr=output_is_data, highlight=False), Console(stderr=True, highlight=False))
