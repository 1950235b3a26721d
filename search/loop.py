"""The one loop: advance every candidate by a chunk, score, select, commit what the kept rows agree on, fork, repeat.

Knows no model and no policy: engines, codecs and scorers are streams, and selection and commit are functions elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from search.config import SearchConfig
from search.protocols import Engine, Scorer, Scores
from search.record import Candidates, Commit, SearchResult, StepRecord
from search.request import SpeechRequest
from search.stream import SearchStream
from search.timing import Stopwatch
from search.track import Track, cut, hear_all

OnCommit = Callable[[NDArray[np.float32], StepRecord], object]
OnStep = Callable[[Candidates], object]


class ChunkSearch:
    """Reward-guided streaming search with one engine and one scorer.

    It holds no state of a search: calls may follow each other, fail, or overlap.

    Args:
        scorer: None is allowed where nothing is to be chosen, that is with `n=1`.
    """

    def __init__(self, engine: Engine, scorer: Scorer | None = None) -> None:
        codec = engine.codec
        for name in ("sample_rate", "frame_rate", "hop"):
            if getattr(engine, name) != getattr(codec, name):
                raise ValueError(
                    f"{name}: engine {engine.name!r} has {getattr(engine, name)}, its codec {getattr(codec, name)}"
                )
        self.engine, self.scorer = engine, scorer

    def stream(
        self,
        request: SpeechRequest,
        config: SearchConfig | None = None,
        *,
        on_step: OnStep | None = None,
        **overrides: Any,
    ) -> SearchStream:
        """Search one utterance; iterate over its commits.

        `overrides` are `SearchConfig` fields; `on_step` sees all candidates of every selection.
        """
        return self.stream_batch([request], config, on_step=on_step, **overrides)

    def stream_batch(
        self,
        requests: Sequence[SpeechRequest],
        config: SearchConfig | None = None,
        *,
        on_step: OnStep | None = None,
        **overrides: Any,
    ) -> SearchStream:
        """Search several utterances in one batch; `Commit.index` says whose a commit is."""
        settings = (config or SearchConfig()).override(overrides)
        if not requests:
            raise ValueError("requests: empty; give at least one SpeechRequest")
        if self.scorer is None and settings.n > 1:
            raise ValueError(f"n: {settings.n} candidates cannot be compared without a scorer; give one, or use n=1")
        engine = self.engine
        limits = [settings.frame_limit(engine.budget(request), engine.frame_rate) for request in requests]
        tracks = [
            Track(request, index, settings, limits[index], engine.hop, engine.frame_rate)
            for index, request in enumerate(requests)
        ]
        return SearchStream(self._run(tracks, settings, on_step), tracks, engine, self.scorer)

    def generate(
        self,
        request: SpeechRequest,
        config: SearchConfig | None = None,
        *,
        on_commit: OnCommit | None = None,
        on_step: OnStep | None = None,
        **overrides: Any,
    ) -> SearchResult:
        """`stream`, collected. `on_commit(segment, step_record)` is called in order, once a committed stretch."""
        return self.generate_batch([request], config, on_commit=on_commit, on_step=on_step, **overrides)[0]

    def generate_batch(
        self,
        requests: Sequence[SpeechRequest],
        config: SearchConfig | None = None,
        *,
        on_commit: OnCommit | None = None,
        on_step: OnStep | None = None,
        **overrides: Any,
    ) -> list[SearchResult]:
        """`stream_batch`, collected: one result a request, in order.

        Raises:
            SearchFailed: with the cause chained, and in `partials` all that was committed before.
        """
        with self.stream_batch(requests, config, on_step=on_step, **overrides) as stream:
            for commit in stream:
                if on_commit is not None:
                    on_commit(commit.segment, commit.record)
        return stream.results

    @torch.inference_mode()
    def _run(self, tracks: list[Track], config: SearchConfig, on_step: OnStep | None) -> Iterator[Commit]:
        engine, scorer, n = self.engine, self.scorer, config.n
        requests = [track.request for track in tracks]
        begin = time.perf_counter()
        with ExitStack() as stack:
            frames = engine.open(requests, n, config.sampling)
            stack.callback(frames.close)
            codec = engine.codec.open(len(tracks), n)
            stack.callback(codec.close)
            judge = scorer.open(requests, n, engine.sample_rate, engine.hop) if scorer else None
            if judge is not None:
                stack.callback(judge.close)
            while live := [track for track in tracks if not track.ended]:
                wanted = (not live[0].steps and config.first_chunk_frames) or config.chunk_frames
                with Stopwatch(engine.device) as making:
                    chunk = frames.advance(min(wanted, max(track.room for track in live)))
                    pcm = codec.decode(chunk)
                fresh = hear_all(tracks, chunk, pcm, engine.name)
                with Stopwatch(scorer.device if scorer else engine.device) as scoring:
                    over = torch.tensor([done or track.at_limit for track in tracks for done in track.finished])
                    heard = fresh * engine.hop
                    scores = judge.score(cut(pcm, heard), heard, over) if judge else _unscored(len(tracks) * n)
                timing = {
                    "generation_wall_seconds": making.wall,
                    "tts_codec_device_seconds": making.device,
                    "total_seconds": scoring.wall,
                }
                parents, settled = torch.arange(n).repeat(len(tracks), 1), torch.zeros(len(tracks), dtype=torch.int64)
                for track in live:
                    rows = slice(track.index * n, track.index * n + n)
                    decision = track.decide(scores, rows)
                    record = track.record(decision, scores, rows, timing)
                    if on_step is not None:
                        on_step(
                            Candidates(
                                track.index, record, track.committed, track.frames, list(track.lengths), track.pcm
                            )
                        )
                    start, segment = track.committed, track.settle(decision)
                    parents[track.index], settled[track.index] = torch.tensor(decision.parents), decision.frames
                    track.wall_seconds = time.perf_counter() - begin
                    if decision.frames:
                        track.first_commit_seconds = track.first_commit_seconds or track.wall_seconds
                        yield Commit(
                            segment, start, decision.frames, record["step"], decision.kept[0],
                            track.wall_seconds, track.request, track.index, record,
                        )  # fmt: skip
                if all(track.ended for track in tracks):
                    break
                generated = settled.clone()
                for idle in (track.index for track in tracks if track not in live):
                    # The batch goes on without it, unheard: one row's frames pass through, so that no tail grows.
                    parents[idle], generated[idle] = 0, chunk.lengths[idle * n]
                for stream, counts in ((frames, generated), (codec, generated), (judge, settled)):
                    if stream is not None:
                        stream.fork(parents)
                        stream.commit(counts)


def _unscored(rows: int) -> Scores:
    return Scores(torch.full((rows,), torch.nan), {}, [{} for _ in range(rows)])
