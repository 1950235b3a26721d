"""Listeners without weights: rewards by script, by chance, or from every sample that was heard. For tests and controls.

Knows nothing about speech.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scorers.heads import Term
from search.noise import RowNoise
from search.protocols import Scores
from search.request import SpeechRequest
from search.state import fork_rows, shared


@dataclass(frozen=True)
class FakeTaste:
    """What a fake scorer likes.

    Attributes:
        script: rewards of the candidates of every request, one tuple a step (n numbers, or one for all); the last tuple
            goes on. Empty: a reward in [0, 1) that follows from all the audio of a row, sample by sample.
        chance: rewards that have nothing to do with the audio: the control of every study.
        prefix_wer: this head, by candidate as in `script`; empty: no such head.
        fails_at, error: step, from 1, at which `error` is raised.
        step_seconds: time that a step takes.
    """

    script: tuple[tuple[float, ...], ...] = ()
    chance: bool = False
    prefix_wer: tuple[float, ...] = ()
    fails_at: int | None = None
    error: type[BaseException] = RuntimeError
    step_seconds: float = 0.0


@dataclass
class _State:
    digest: Tensor  # int64 [R], a weighted sum of all samples
    heard: Tensor  # int64 [R], samples
    pending: Tensor  # int64 [R], samples that are not committed
    finished: Tensor  # bool [R]
    step: int = shared()


class FakeScorer:
    """See `FakeTaste`. Counts streams opened and closed."""

    name = "fake"
    rereads = False

    def __init__(self, taste: FakeTaste | None = None, device: torch.device | str = "cpu") -> None:
        self.options = taste or FakeTaste()
        self.device = torch.device(device)
        heard = Term("heard_seconds", meaning="audio so far")
        self.terms = (heard, Term("prefix_wer", "lower", "by script")) if self.options.prefix_wer else (heard,)
        self.opened = self.closed = 0

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> FakeScorerStream:
        self.opened += 1
        return FakeScorerStream(self, requests, n, sample_rate, hop)


class FakeScorerStream:
    """What each row has sounded like so far. Checks what the loop promises about the audio that it hands over."""

    def __init__(
        self, scorer: FakeScorer, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int
    ) -> None:
        self._scorer, self._options = scorer, scorer.options
        self._sample_rate, self._hop = sample_rate, hop
        self._batch, self._n = len(requests), n
        self._chance = RowNoise(0, [f"reward of {request.id}" for request in requests], n, scorer.device)
        self._open = True
        rows = self._batch * n
        self._state = _State(
            digest=torch.zeros(rows, dtype=torch.int64, device=scorer.device),
            heard=torch.zeros(rows, dtype=torch.int64, device=scorer.device),
            pending=torch.zeros(rows, dtype=torch.int64, device=scorer.device),
            finished=torch.zeros(rows, dtype=torch.bool, device=scorer.device),
            step=0,
        )

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        self._check_open()
        state, options, device = self._state, self._options, self._scorer.device
        state.step += 1
        if options.fails_at is not None and state.step >= options.fails_at:
            raise options.error(f"fake scorer: told to fail at step {options.fails_at}")
        if options.step_seconds:
            time.sleep(options.step_seconds)
        self._listen(pcm.to(device), lengths.to(device))
        state.finished = finished.to(device)
        heads = {"heard_seconds": state.heard / self._sample_rate}
        if options.prefix_wer:
            heads["prefix_wer"] = self._by_candidate(options.prefix_wer)
        return Scores(self._reward(), heads, [{"transcript": f"{count} samples"} for count in state.heard.tolist()])

    def fork(self, parents: Tensor) -> None:
        self._check_open()
        fork_rows(self._state, parents)

    def commit(self, frames: Tensor) -> None:
        self._check_open()
        samples = (frames.to(self._scorer.device) * self._hop).repeat_interleave(self._n)
        self._state.pending = self._state.pending - samples
        assert bool((self._state.pending >= 0).all()), f"commit of {frames.tolist()} frames, more than were heard"

    def close(self) -> None:
        self._scorer.closed += self._open
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("this stream is closed: open another one")

    def _listen(self, pcm: Tensor, lengths: Tensor) -> None:
        state, place = self._state, torch.arange(pcm.shape[1], device=pcm.device)
        assert not bool((state.finished & (lengths > 0)).any()), "audio for a row that had finished"
        assert not bool((pcm != 0)[place >= lengths[:, None]].any()), "sound beyond a row's length"
        weight = ((state.heard[:, None] + place) * 0x85EBCA6B >> 7 & 0xFFFF) + 1
        state.digest = state.digest + ((pcm * 2.0**15).round().long() * weight).sum(1)
        state.heard, state.pending = state.heard + lengths, state.pending + lengths

    def _reward(self) -> Tensor:
        state, script = self._state, self._options.script
        if script:
            return self._by_candidate(script[min(state.step, len(script)) - 1])
        if self._options.chance:
            return self._chance.uniform(state.step, 1, 1)[:, 0, 0]
        return (state.digest * 0x9E3779B1 >> 8 & 0xFFFFFF).float() * 2.0**-24

    def _by_candidate(self, values: tuple[float, ...]) -> Tensor:
        each = torch.tensor(values, device=self._scorer.device).expand(self._n)
        return each.repeat(self._batch)


def load(device: torch.device) -> FakeScorer:
    """A listener that likes what follows from all samples, as a head."""
    return FakeScorer(device=device)
