"""The streams of one search, moved together: engine, codec and scorer are opened, timed, forked and closed as one.

Knows nothing of what is selected or committed, nor why.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import torch
from torch import Tensor

from search.config import SearchConfig
from search.protocols import Chunk, Engine, Scorer, ScorerStream, Scores
from search.request import SpeechRequest
from search.timing import Stopwatch


class Branches:
    """`n` candidates of each request. Opens its streams when entered, closes all of them when left, whatever happened.

    Attributes:
        timing: seconds that the last `advance` and `score` took, under the names that step records use.
    """

    def __init__(
        self, engine: Engine, scorer: Scorer | None, requests: Sequence[SpeechRequest], config: SearchConfig
    ) -> None:
        self._engine, self._scorer = engine, scorer
        self._requests, self._config = requests, config
        self._open = ExitStack()
        self.timing: dict[str, float] = {}

    def __enter__(self) -> Branches:
        engine, scorer, n = self._engine, self._scorer, self._config.n
        with ExitStack() as opening:
            self._frames = engine.open(self._requests, n, self._config.sampling)
            opening.callback(self._frames.close)
            self._codec = engine.codec.open(len(self._requests), n)
            opening.callback(self._codec.close)
            self._judge: ScorerStream | None = None
            if scorer is not None:
                self._judge = scorer.open(self._requests, n, engine.sample_rate, engine.hop)
                opening.callback(self._judge.close)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def advance(self, frames: int) -> tuple[Chunk, Tensor]:
        """Generate up to `frames` frames in every row; the chunk and its PCM, float32 [R, T * hop]."""
        with Stopwatch(self._engine.device) as watch:
            chunk = self._frames.advance(frames)
            pcm = self._codec.decode(chunk)
        self.timing = {"generation_wall_seconds": watch.wall, "tts_codec_device_seconds": watch.device}
        return chunk, pcm

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        """Judge all rows with their new PCM, `lengths` int64 [R] samples of it; without a scorer, no reward at all."""
        with Stopwatch(self._scorer.device if self._scorer else self._engine.device) as watch:
            if self._judge is not None:
                scores = self._judge.score(silenced(pcm, lengths), lengths, finished)
            else:
                scores = Scores(torch.full((len(finished),), torch.nan), {}, [{} for _ in finished])
        self.timing["total_seconds"] = watch.wall
        return scores

    def carry_on(self, parents: Tensor, generated: Tensor, judged: Tensor) -> None:
        """Fork every stream by `parents` (int64 [B, N]), then commit.

        `generated` and `judged` int64 [B] count the frames that are now equal in all rows of a request: those that the
        engine made, and those of them that the scorer has heard.
        """
        for stream, frames in ((self._frames, generated), (self._codec, generated), (self._judge, judged)):
            if stream is not None:
                stream.fork(parents)
                stream.commit(frames)


def silenced(pcm: Tensor, lengths: Tensor) -> Tensor:
    """PCM [R, S] with silence beyond each row's `lengths` (int64 [R], in samples)."""
    place = torch.arange(pcm.shape[1], device=pcm.device)
    return pcm.masked_fill(place >= lengths.to(pcm.device)[:, None], 0.0)
