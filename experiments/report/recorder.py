"""Takes kept for listening: one search with its commits, and every candidate it heard at each step.

Collects what the loop hands out; knows nothing about files or pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from search import Commit, SearchResult
from search.record import Candidates, StepRecord


@dataclass(frozen=True)
class HeardStep:
    """All candidates of one selection.

    Attributes:
        record: the step's record.
        start_frame: first frame of the audio below: the first that was not committed before this selection.
        parents: the row of the step before that each row continues; empty at the first step.
        pcm: what each row had not committed yet, int16 [samples] of its own length.
    """

    record: StepRecord
    start_frame: int
    parents: list[int]
    pcm: list[NDArray[np.int16]]


@dataclass(frozen=True)
class Take:
    """One search, kept.

    Attributes:
        label: what sets it apart from other takes of the same text, such as "N = 8".
        steps: empty unless candidates were recorded.
    """

    label: str
    result: SearchResult
    commits: list[Commit]
    steps: list[HeardStep]

    @property
    def final_score(self) -> dict[str, object]:
        """Reward, heads and notes of the row that won; empty when no selection was made."""
        score: dict[str, object] = self.result.performance["final_search_score"] or {}
        return score


@dataclass
class Recorder:
    """An `on_step` that keeps a copy of every candidate's audio."""

    steps: list[HeardStep] = field(default_factory=list)

    def __call__(self, candidates: Candidates) -> None:
        """Keep one step."""
        hop = candidates.pcm.shape[1] // max(1, candidates.frames.shape[1])
        samples = (candidates.pcm.clamp(-1.0, 1.0) * 32767.0).round().numpy().astype(np.int16)
        self.steps.append(
            HeardStep(
                record=candidates.record,
                start_frame=candidates.start_frame,
                parents=list(self.steps[-1].record["parents"]) if self.steps else [],
                pcm=[row[: length * hop].copy() for row, length in zip(samples, candidates.lengths, strict=True)],
            )
        )
