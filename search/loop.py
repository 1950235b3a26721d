"""The one loop: advance every candidate by a chunk, score, select, commit what the kept rows agree on, fork, repeat.

Knows no model and no policy: engines, codecs and scorers are streams, and selection and commit are functions elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from search.branches import Branches
from search.config import SearchConfig
from search.protocols import Engine, Scorer
from search.record import Candidates, Commit, SearchResult, StepRecord
from search.request import SpeechRequest
from search.stream import SearchStream
from search.track import Track, hear_all

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
        if config is not None and not isinstance(config, SearchConfig):
            raise TypeError(f"config: {config!r} is a {type(config).__name__}; give a SearchConfig")
        settings = (config or SearchConfig()).override(overrides)
        if not requests:
            raise ValueError("requests: empty; give at least one SpeechRequest")
        for request in requests:
            if not isinstance(request, SpeechRequest):
                kind = type(request).__name__
                raise TypeError(f"requests: {request!r} is a {kind}; give SpeechRequest(text=...)")
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
        engine, n = self.engine, config.n
        begin = time.perf_counter()
        with Branches(engine, self.scorer, [track.request for track in tracks], config) as branches:
            while live := [track for track in tracks if not track.ended]:
                wanted = (not live[0].steps and config.first_chunk_frames) or config.chunk_frames
                chunk, pcm = branches.advance(min(wanted, max(track.room for track in live)))
                fresh = hear_all(tracks, chunk, pcm, engine.name)
                over = torch.tensor([done or track.at_limit for track in tracks for done in track.finished])
                scores = branches.score(pcm, fresh * engine.hop, over)
                # A request that has ended is unheard; one row's frames pass through, so that no tail grows.
                parents = torch.zeros(len(tracks), n, dtype=torch.int64)
                generated, judged = chunk.lengths[::n].cpu().clone(), torch.zeros(len(tracks), dtype=torch.int64)
                for track in live:
                    decision = track.decide(scores)
                    record = track.record(decision, scores, branches.timing)
                    if on_step is not None:
                        on_step(track.candidates(record))
                    start, segment = track.committed, track.settle(decision)
                    parents[track.index] = torch.tensor(decision.parents)
                    generated[track.index] = judged[track.index] = decision.frames
                    track.wall_seconds = time.perf_counter() - begin
                    if decision.frames:
                        track.first_commit_seconds = track.first_commit_seconds or track.wall_seconds
                        yield Commit(
                            segment, start, decision.frames, record["step"], decision.kept[0],
                            track.wall_seconds, track.request, track.index, record,
                        )  # fmt: skip
                if not all(track.ended for track in tracks):
                    branches.carry_on(parents, generated, judged)
