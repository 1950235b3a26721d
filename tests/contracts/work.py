"""Law 9: elements written are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from search import SpeechRequest
from search.protocols import Chunk, Codec, Scorer
from search.state import BranchCache
from tests.contracts.counting import Work
from tests.contracts.forks import slots_of, states_of
from tests.contracts.subject import Subject, closing


def work_does_not_grow(chunks: int, step: Callable[[], Any]) -> None:
    """Law 9: `step`, which makes and commits one chunk, writes no more in late chunks than in early ones."""
    done = []
    for _ in range(chunks):
        with torch.inference_mode(), Work() as work:
            step()
        done.append(work.elements)
    early, late = max(done[1:3]), max(done[3:])
    assert late <= 1.02 * early + 16, f"elements written a chunk: {done}"


def engine_work_does_not_grow(subject: Subject) -> None:
    n = 3
    with closing(subject.engine.open([subject.requests[0]], n, subject.sampling)) as stream:

        def step() -> None:
            chunk = stream.advance(2)
            assert int(chunk.lengths[0]) == 2, "law 9 needs a request that speaks longer; put one first"
            stream.fork(torch.zeros(1, n, dtype=torch.int64))
            stream.commit(torch.tensor([2]))

        work_does_not_grow(subject.work_chunks, step)


def codec_work_does_not_grow(codec: Codec, pool: Tensor, chunks: int = 12) -> None:
    """Two requests, one of which ended in the first chunk: neither what is committed nor what is idle may cost."""
    n, length, first = 3, 5, True
    with closing(codec.open(2, n)) as stream:

        def step() -> None:
            nonlocal first
            frames = pool[torch.arange(length) % len(pool)].expand(2 * n, *[-1] * pool.ndim)
            lengths = torch.tensor([length] * n + [3 if first else 0] * n)
            stream.decode(Chunk(frames, lengths, torch.tensor([False] * n + [True] * n)))
            stream.fork(torch.full((2, n), n - 1))
            stream.commit(torch.tensor([length, 3 if first else 0]))
            first = False

        work_does_not_grow(chunks, step)
        caches = [
            value for state in states_of(stream) for *_, value in slots_of(state, "") if isinstance(value, BranchCache)
        ]
        for cache in caches:
            assert max(cache.pending) <= length, f"an ended request's tail grows: {cache.pending}"


def scorer_work_does_not_grow(
    scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int, hop: int, chunks: int = 12
) -> None:
    n, length, first = 3, 5, True
    sound = pcm[torch.arange(length * hop) % len(pcm)]
    with closing(scorer.open(requests[:2], n, rate, hop)) as stream:

        def step() -> None:
            nonlocal first
            lengths = torch.tensor([length] * n + [3 if first else 0] * n)
            heard = sound.expand(2 * n, -1) * (torch.arange(length * hop) < lengths[:, None] * hop)
            stream.score(heard, lengths * hop, torch.tensor([False] * n + [True] * n))
            stream.fork(torch.full((2, n), n - 1))
            stream.commit(torch.tensor([length, 3 if first else 0]))
            first = False

        work_does_not_grow(chunks, step)
