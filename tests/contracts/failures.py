"""Law 10: every part fails in turn, at every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from search import ChunkSearch, SearchFailed, SearchInterrupted, SearchResult
from tests.contracts.subject import Subject


class Watched:
    """An engine, codec or scorer whose streams are counted, and fail where told."""

    def __init__(self, inner: Any, method: str, fails_at: int = 0, error: BaseException | None = None) -> None:
        self._inner, self._method, self._fails_at, self.error = inner, method, fails_at, error
        self.opened, self.closed = 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, *args: Any) -> Any:
        if self.error is not None and self._fails_at == 0:
            raise self.error
        stream = self._inner.open(*args)
        self.opened += 1
        return _WatchedStream(self, stream)


class _WatchedStream:
    def __init__(self, watched: Watched, inner: Any) -> None:
        self._watched, self._inner, self._calls, self._open = watched, inner, 0, True

    def __getattr__(self, name: str) -> Any:
        if name == self._watched._method:
            self._calls += 1
            if self._watched.error is not None and self._calls == self._watched._fails_at:
                raise self._watched.error
        return getattr(self._inner, name)

    def close(self) -> None:
        self._watched.closed += self._open
        self._open = False
        self._inner.close()


PARTS = {"engine": "advance", "codec": "decode", "scorer": "score"}


def failures_lose_nothing(subject: Subject) -> None:
    """The caller gets the cause and all committed audio, streams are closed, and the same search works again."""
    for error in (RuntimeError("broken"), torch.OutOfMemoryError("out of memory"), KeyboardInterrupt()):
        for part in PARTS:
            for call in (0, 1, 2):
                Trial(subject, part, call, error).fails_in_a_part()
    Trial(subject).fails_in_the_callback()
    Trial(subject).is_cancelled()


class Trial:
    """One search that is to fail: in call number `call` of a part (0: when it is opened), or in the caller's code."""

    def __init__(self, subject: Subject, part: str = "", call: int = 0, error: BaseException | None = None) -> None:
        def watched(inner: Any, name: str) -> Watched:
            return Watched(inner, PARTS[name], call, error if name == part else None)

        engine, codec = watched(subject.engine, "engine"), watched(subject.engine.codec, "codec")
        engine.codec = codec
        scorer = watched(subject.scorer, "scorer")
        self.search = ChunkSearch(engine, scorer)  # type: ignore[arg-type]
        self.watches = [engine, codec, scorer]
        self.request, self.error = subject.requests[0], error
        self.settings: dict[str, Any] = {"n": 3, "chunk_frames": 2, "max_seconds": 1.0}
        self.heard: list[NDArray[np.float32]] = []

    def fails_in_a_part(self) -> None:
        kind = SearchInterrupted if isinstance(self.error, KeyboardInterrupt) else SearchFailed
        with pytest.raises(kind) as caught:
            self.search.generate(self.request, on_commit=lambda segment, _: self.heard.append(segment), **self.settings)
        assert caught.value.__cause__ is self.error, "the cause is lost"
        self.check(caught.value.partial, "failed")

    def fails_in_the_callback(self) -> None:
        def play(segment: NDArray[np.float32], record: dict[str, Any]) -> None:
            self.heard.append(segment)
            if record["step"] == 2:
                raise LookupError("the player is gone")

        with pytest.raises(SearchFailed) as caught:
            self.search.generate(self.request, on_commit=play, **self.settings)
        assert isinstance(caught.value.__cause__, LookupError)
        assert len(self.heard) == 2
        self.check(caught.value.partial, "failed")

    def is_cancelled(self) -> None:
        stream = self.search.stream(self.request, **self.settings)
        self.heard.append(next(stream).segment)
        stream.close()
        self.check(stream.result, "cancelled")

    def check(self, partial: SearchResult, status: str) -> None:
        assert partial.status == status
        heard = np.concatenate(self.heard) if self.heard else np.zeros(0, np.float32)
        assert np.array_equal(partial.audio, heard), "not all committed audio was handed back"
        for watch in self.watches:
            assert watch.opened == watch.closed, f"{watch.opened} streams opened, {watch.closed} closed"
            watch.error = None
        again = self.search.generate(self.request, **self.settings)
        assert again.status in ("complete", "hit_frame_limit")
        assert np.array_equal(again.audio[: len(heard)], heard), "the partial audio is not how the audio begins"
