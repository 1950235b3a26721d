"""Law 9: elements written are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from search import SpeechRequest
from search import state as search_state
from search.protocols import Chunk, Codec, Scorer
from search.state import BranchCache
from tests.contracts.forks import slots_of, states_of
from tests.contracts.subject import Subject, closing


class Work(TorchDispatchMode):
    """Counts the elements that operations write, views and attention aside."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self._paused = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if not self._paused and not views:
            self.elements += sum(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        return out

    def aside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, uncounted."""

        def uncounted(*args: Any, **kwargs: Any) -> Any:
            self._paused += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._paused -= 1

        return uncounted

    def __enter__(self) -> Work:
        extend, grown = BranchCache.extend, search_state._grown

        def attending(cache: BranchCache, *args: Any, **kwargs: Any) -> search_state.Step:
            step = self.aside(extend)(cache, *args, **kwargs)
            return replace(step, attend=self.aside(step.attend))

        self._patches = [
            mock.patch.object(BranchCache, "extend", attending),
            mock.patch.object(search_state, "_grown", self.aside(grown)),  # amortised: test_state counts it
        ]
        for patch in self._patches:
            patch.start()
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for patch in self._patches:
            patch.stop()


def work_does_not_grow(chunks: int, step: Callable[[], Any]) -> None:
    """Law 9: `step`, which makes and commits one chunk, writes no more in late chunks than in early ones."""
    done = []
    for _ in range(chunks):
        with torch.no_grad(), Work() as work:
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
