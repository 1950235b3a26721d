"""One request's share of a search: its uncommitted frames and audio, what is committed, and the decision at each step.

Plain bookkeeping on the CPU. Knows nothing of streams, devices or models, so it is tested without weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from search.commit import agreed_frames, drop_late
from search.config import SearchConfig
from search.protocols import Chunk, Scores
from search.record import Candidates, StepRecord, seconds_of
from search.request import SpeechRequest
from search.select import rank, spread


@dataclass(frozen=True)
class Decision:
    """What one selection means for one request.

    Attributes:
        kept: rows that go on, best first; one row when the request has ended.
        parents: the old row that each new row continues.
        frames: how many of the oldest uncommitted frames become final.
    """

    kept: list[int]
    parents: list[int]
    frames: int


@dataclass(eq=False)
class Track:
    """The rows of one request.

    Attributes:
        limit: frames that the utterance may take.
        frames, pcm: [N, T, q] and [N, T * hop], uncommitted, with padding behind each row's `lengths`.
        ended: the winner is chosen; later steps of the batch concern other requests.
    """

    request: SpeechRequest
    index: int
    config: SearchConfig
    limit: int
    hop: int
    frame_rate: Fraction
    frames: Tensor = field(default_factory=lambda: torch.empty(0))
    pcm: Tensor = field(default_factory=lambda: torch.empty(0))
    lengths: list[int] = field(default_factory=list)
    finished: list[bool] = field(default_factory=list)
    committed: int = 0
    ended: bool = False
    hit_frame_limit: bool = False
    segments: list[NDArray[np.float32]] = field(default_factory=list)
    final_frames: list[Tensor] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    final_score: dict[str, Any] | None = None
    first_commit_seconds: float | None = None
    wall_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.lengths = [0] * self.config.n
        self.finished = [False] * self.config.n

    @property
    def rows(self) -> slice:
        """Where this request's rows are in the batch."""
        return slice(self.index * self.config.n, (self.index + 1) * self.config.n)

    @property
    def longest(self) -> int:
        """Frames since the start of the longest row."""
        return self.committed + max(self.lengths)

    @property
    def room(self) -> int:
        """Frames that are worth asking for: one past the limit, for a row that ends exactly there to say so."""
        return self.limit + 1 - self.longest

    @property
    def at_limit(self) -> bool:
        """No row may grow any more, though some have not said that they are done."""
        return self.longest >= self.limit and not all(self.finished)

    def hear(self, frames: Tensor, lengths: list[int], finished: list[bool], pcm: Tensor) -> list[int]:
        """Append a chunk of all rows; returns the new real frames of each row, cut at the limit.

        `frames` [N, T, q] and `pcm` [N, T * hop], on the CPU. A row whose end lies beyond the limit has not finished.
        """
        self.frames = torch.cat([self.frames, frames], 1) if self.frames.numel() else frames
        self.pcm = torch.cat([self.pcm, pcm], 1) if self.pcm.numel() else pcm
        room = self.limit - self.committed
        grown = [min(old + new, room) for old, new in zip(self.lengths, lengths, strict=True)]
        fresh = [new - old for new, old in zip(grown, self.lengths, strict=True)]
        self.finished = [
            done and old + new <= room for done, old, new in zip(finished, self.lengths, lengths, strict=True)
        ]
        self.lengths = grown
        return fresh

    def decide(self, scores: Scores) -> Decision:
        """Rank the rows by the batch's scores, keep the best, find what they agree on."""
        rewards = scores.reward[self.rows].tolist()
        prefix_wer = scores.heads["prefix_wer"][self.rows].tolist() if "prefix_wer" in scores.heads else None
        over = self.at_limit or all(self.finished)
        kept = rank(rewards, prefix_wer)[: 1 if over else self.config.beam_width]
        kept = drop_late(self.frames, self.lengths, kept, self._max_lag)
        if over or all(self.finished[row] for row in kept):
            self.ended, self.hit_frame_limit = True, not self.finished[kept[0]]
            return Decision(kept[:1], [kept[0]] * self.config.n, self.lengths[kept[0]])
        return Decision(kept, spread(kept, self.config.n), agreed_frames(self.frames, self.lengths, kept))

    def record(self, decision: Decision, scores: Scores, timing: dict[str, float]) -> StepRecord:
        """Write the step record of a decision."""
        judged: list[dict[str, Any]] = []
        for row in range(self.rows.start, self.rows.stop):
            reward = float(scores.reward[row])
            heads = {name: float(values[row]) for name, values in scores.heads.items()}
            judged.append(
                {
                    **scores.notes[row],  # first: words never stand in the place of a number
                    "reward": reward,
                    "prefix_wer": math.nan,
                    "judged": math.isfinite(reward),
                    **heads,
                }
            )
        entry: StepRecord = {
            "request": self.index,
            "step": len(self.steps) + 1,
            "frame": self.longest,
            "retained_rows": decision.kept,
            "parents": decision.parents,
            "lengths": list(self.lengths),
            "finished": list(self.finished),
            "committed_audio_seconds": seconds_of(decision.frames, self.frame_rate),
            "committed_until_seconds": seconds_of(self.committed + decision.frames, self.frame_rate),
            **timing,
            "scores": judged,
        }
        self.steps.append(entry)
        self.final_score = judged[decision.kept[0]]
        return entry

    def candidates(self, record: StepRecord) -> Candidates:
        """All rows as they stand at a selection, before it is carried out."""
        return Candidates(self.index, record, self.committed, self.frames, list(self.lengths), self.pcm)

    def settle(self, decision: Decision) -> NDArray[np.float32]:
        """Make the decided frames final, let the other rows follow their parents; returns the new final audio."""
        best, count = decision.kept[0], decision.frames
        segment = self.pcm[best, : count * self.hop].numpy().copy()
        if count:
            self.segments.append(segment)
            self.final_frames.append(self.frames[best, :count].clone())
        parents = decision.parents
        self.frames = self.frames[parents, count:]
        self.pcm = self.pcm[parents, count * self.hop :]
        self.lengths = [self.lengths[row] - count for row in parents]
        self.finished = [self.finished[row] for row in parents]
        self.committed += count
        return segment

    @property
    def _max_lag(self) -> int | None:
        seconds = self.config.max_lag_seconds
        return None if seconds is None else math.floor(Fraction(str(seconds)) * self.frame_rate)

    @property
    def audio(self) -> NDArray[np.float32]:
        """Everything committed, float32 [samples]."""
        return np.concatenate(self.segments) if self.segments else np.zeros(0, np.float32)

    @property
    def all_frames(self) -> Tensor:
        """The frames of that audio, [T, q]."""
        if self.final_frames:
            return torch.cat(self.final_frames)
        return self.frames[0, :0] if self.frames.ndim == 3 else torch.empty(0, 0)


def hear_all(tracks: Sequence[Track], chunk: Chunk, pcm: Tensor, engine_name: str) -> Tensor:
    """Give each request its rows of a chunk; returns the new frames of every row that count, int64 [R].

    Rows of a request that has ended have none.

    Raises:
        RuntimeError: the engine or its codec broke its promise about shapes, or made samples that are not finite.
    """
    expected = (chunk.frames.shape[0], chunk.frames.shape[1] * tracks[0].hop)
    if tuple(pcm.shape) != expected:
        raise RuntimeError(f"codec of {engine_name!r}: PCM of shape {tuple(pcm.shape)} for frames that need {expected}")
    if not chunk.frames.shape[1] and not bool(chunk.finished.all()):
        raise RuntimeError(f"engine {engine_name!r}: no frames, though not all rows have finished")
    frames, lengths, finished, audio = (part.cpu() for part in (chunk.frames, chunk.lengths, chunk.finished, pcm))
    if not bool(audio.isfinite().all()):
        _check_real_samples(tracks, audio, lengths, engine_name)
    fresh: list[int] = []
    for track in tracks:
        rows = track.rows
        if track.ended:
            fresh += [0] * track.config.n
        else:
            fresh += track.hear(frames[rows], lengths[rows].tolist(), finished[rows].tolist(), audio[rows])
    return torch.tensor(fresh, dtype=torch.int64)


def _check_real_samples(tracks: Sequence[Track], audio: Tensor, lengths: Tensor, engine_name: str) -> None:
    """Raise where a row of a request that goes on has samples that are not finite; padding may hold anything."""
    real = torch.arange(audio.shape[1]) < lengths[:, None] * tracks[0].hop
    broken = (real & ~audio.isfinite()).any(1)
    for track in tracks:
        if not track.ended and bool(broken[track.rows].any()):
            row = int(broken[track.rows].nonzero()[0])
            raise RuntimeError(f"engine {engine_name!r}: samples of candidate {row} are not finite; check its weights")
