"""Scorers made of heads that hear whole clips: keeps what every row has said, and hands it over at each step.

What is committed is kept once a request, the rest once a row. Knows nothing of what a head hears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorers.heads import Clip, ClipHead, Judgement
from search.protocols import Scores
from search.request import SpeechRequest
from search.state import fork_rows, shared


@dataclass
class Said:
    """What the rows have said; rows on axis 0.

    Attributes:
        tail: float32 [R, S], uncommitted samples, zeros beyond a row's length.
        lengths: int64 [R], uncommitted samples.
        broken: bool [R], some sample was no finite number.
        trunks: float32 [samples] of each request, committed.
    """

    tail: Tensor
    lengths: Tensor
    broken: Tensor
    trunks: list[Tensor] = shared()  # noqa: RUF009 - a marker, no value


class Rereader:
    """A scorer that lets one head hear all that was said, again at every step: its cost grows with the audio."""

    rereads = True

    def __init__(self, head: ClipHead) -> None:
        self.head = head
        self.name, self.device, self.terms = head.name, head.device, head.terms

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> RereadingStream:
        """Prepare the head for each request; raises its `ValueError` for one that it cannot judge."""
        return RereadingStream(self.head, [self.head.prepare(request) for request in requests], n, sample_rate, hop)


class RereadingStream:
    """The rows of some requests, heard by one head; PCM stays on the CPU, at the rate it came in."""

    def __init__(self, head: ClipHead, prepared: Sequence[Any], n: int, sample_rate: int, hop: int) -> None:
        self._head, self._prepared, self._n = head, prepared, n
        self._sample_rate, self._hop = sample_rate, hop
        rows = len(prepared) * n
        self._state: Said | None = Said(
            tail=torch.zeros(rows, 0),
            lengths=torch.zeros(rows, dtype=torch.int64),
            broken=torch.zeros(rows, dtype=torch.bool),
            trunks=[torch.zeros(0) for _ in prepared],
        )

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        """Hear the new samples of every row, then judge all rows."""
        self.hear(pcm, lengths)
        return self.judge(finished)

    def hear(self, pcm: Tensor, lengths: Tensor) -> None:
        """Add new samples (float32 [R, S], `lengths` int64 [R] of them real) without judging anything."""
        state = self._open_state
        pcm, lengths = pcm.cpu().float(), lengths.cpu()
        new = torch.arange(pcm.shape[1]) < lengths[:, None]
        state.broken = state.broken | (new & ~pcm.isfinite()).any(1)
        longest = int((state.lengths + lengths).max())
        grown = state.tail.new_zeros(len(state.tail), longest)
        held = min(longest, state.tail.shape[1])
        grown[:, :held] = state.tail[:, :held]
        place = (state.lengths[:, None] + torch.arange(pcm.shape[1]))[new]
        row = torch.arange(len(pcm))[:, None].expand_as(new)[new]
        grown[row, place] = pcm[new].nan_to_num()
        state.tail, state.lengths = grown, state.lengths + lengths

    def judge(self, finished: Tensor, wanted: Tensor | None = None) -> Scores:
        """Judge what was heard so far; rows that are False in `wanted` (bool [R]) are left out and get NaN."""
        state = self._open_state
        ends, asked = finished.tolist(), [True] * len(finished) if wanted is None else wanted.tolist()
        silent = ["" if want else "not asked for" for want in asked]
        for row, broken in enumerate(state.broken.tolist()):
            if broken:
                silent[row] = "audio is not finite"
            elif not silent[row] and not self._samples(row):
                silent[row] = "nothing heard yet"
        heard = [row for row, reason in enumerate(silent) if not reason]
        clips = [self._clip(row, ends[row]) for row in heard]
        found = dict(zip(heard, self._head.judge(clips) if clips else [], strict=True))
        nothing = {term.name: float("nan") for term in self._head.terms}
        rows = [found.get(row) or Judgement(nothing, {"not_judged": reason}) for row, reason in enumerate(silent)]
        heads = {name: torch.tensor([row.terms[name] for row in rows], dtype=torch.float32) for name in nothing}
        principal = self._head.terms[0]
        return Scores(principal.sign * heads[principal.name] + 0.0, heads, [row.note for row in rows])

    def fork(self, parents: Tensor) -> None:
        """Row (b, i) goes on as old row (b, parents[b, i]); int64 [B, N]."""
        fork_rows(self._open_state, parents.cpu())

    def commit(self, frames: Tensor) -> None:
        """Move the oldest `frames[b]` frames, now the same in all rows of request b, to its trunk; int64 [B]."""
        state = self._open_state
        samples = (frames.cpu() * self._hop).tolist()
        for request, count in enumerate(samples):
            rows = slice(request * self._n, (request + 1) * self._n)
            if not count:
                continue
            assert bool((state.lengths[rows] >= count).all()), f"commit of {count} samples, more than were heard"
            state.trunks[request] = torch.cat([state.trunks[request], state.tail[rows][0, :count]])
            rest = state.tail[rows, count:].clone()
            state.tail[rows] = 0.0
            state.tail[rows, : rest.shape[1]] = rest
            state.lengths[rows] -= count
        state.tail = state.tail[:, : int(state.lengths.max())].clone() if any(samples) else state.tail

    def close(self) -> None:
        """Forget everything."""
        self._state = None

    @property
    def _open_state(self) -> Said:
        if self._state is None:
            raise RuntimeError(f"{self._head.name}: the stream is closed; open a new one")
        return self._state

    def _samples(self, row: int) -> int:
        state = self._open_state
        return len(state.trunks[row // self._n]) + int(state.lengths[row])

    def _clip(self, row: int, finished: bool) -> Clip:
        state, request = self._open_state, row // self._n
        trunk, tail = state.trunks[request], state.tail[row, : int(state.lengths[row])]
        rate = self._head.sample_rate
        return Clip(
            pcm=_resampled(torch.cat([trunk, tail]).numpy(), self._sample_rate, rate),
            committed=len(trunk) * rate // self._sample_rate,
            finished=finished,
            prepared=self._prepared[request],
        )


def _resampled(pcm: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Mono PCM at another rate; at least one sample."""
    if rate == wanted:
        return pcm
    heard: NDArray[np.float32] = soxr.resample(pcm, rate, wanted).astype(np.float32)
    return heard if len(heard) else np.zeros(1, np.float32)
