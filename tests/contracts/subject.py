"""What the laws are tried on, and how examples are drawn. Knows no law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from search import ChunkSearch, Sampling, SearchResult, SpeechRequest
from search.protocols import Engine, Scorer


@dataclass(frozen=True)
class Subject:
    """What the laws are tried on.

    Attributes:
        requests: three, of different lengths and ids.
        max_seconds: cuts long searches; None leaves them to the engine's budgets, which differ by request.
        pcm_tolerance, score_tolerance: largest difference that rounding may make; 0 is bitwise.
        examples: of every property.
        work_chunks: that `requests[0]` speaks, two frames each.
        shrink: whether a failure is made small. Mutants need none, and must be caught in every run: no chance there.
    """

    engine: Engine
    scorer: Scorer
    requests: Sequence[SpeechRequest]
    max_seconds: float | None = 2.0
    pcm_tolerance: float = 0.0
    score_tolerance: float = 0.0
    sampling: Sampling = field(default_factory=Sampling)
    examples: int = 15
    work_chunks: int = 6
    shrink: bool = True

    @property
    def search(self) -> ChunkSearch:
        return ChunkSearch(self.engine, self.scorer)

    def generate(self, requests: Sequence[SpeechRequest], **settings: Any) -> list[SearchResult]:
        return self.search.generate_batch(requests, **{"max_seconds": self.max_seconds, **settings})

    def pool(self) -> Tensor:
        """Frames that the codec can decode, [P, ...]."""
        with closing(self.engine.open(self.requests, 2, self.sampling)) as stream:
            chunk = stream.advance(30)
        return torch.cat([row[:length] for row, length in zip(chunk.frames, chunk.lengths.tolist(), strict=True)])


def holds(subject: Subject | int, **strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], None]:
    """Run the decorated check at once, on drawn examples."""
    examples = subject if isinstance(subject, int) else subject.examples
    mutant = isinstance(subject, Subject) and not subject.shrink
    phases = [Phase.generate] if mutant else list(Phase)
    derandomize = mutant or settings.default.derandomize
    run = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        report_multiple_bugs=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    return lambda check: run(given(**strategies)(check))()


class closing:  # noqa: N801
    """`contextlib.closing`, in inference mode, as the loop uses streams."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._quiet = stream, torch.inference_mode()

    def __enter__(self) -> Any:
        self._quiet.__enter__()
        return self._stream

    def __exit__(self, *exception: Any) -> None:
        self._stream.close()
        self._quiet.__exit__(*exception)


def close_to(mine: Tensor, theirs: Tensor, tolerance: float, what: str) -> None:
    assert mine.shape == theirs.shape, f"{what}: shapes {tuple(mine.shape)} and {tuple(theirs.shape)}"
    if tolerance == 0.0:
        assert bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all()), f"{what}: not equal"
    elif mine.numel():
        gap = float((mine - theirs).abs().nan_to_num().max())
        assert gap <= tolerance, f"{what}: differ by {gap:.3g}, more than {tolerance:.3g}"


def some_parents(data: st.DataObject, batch: int, n: int) -> Tensor:
    row = st.lists(st.integers(0, n - 1), min_size=n, max_size=n)
    return torch.tensor([data.draw(row) for _ in range(batch)])


def frame_tolerance(subject: Subject, frames: Tensor) -> float:
    return subject.pcm_tolerance if frames.is_floating_point() else 0.0
