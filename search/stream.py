"""A search in progress, as its caller holds it: iterate, close, read the results. Knows nothing of the loop's steps."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from search.errors import SearchFailed, SearchInterrupted
from search.performance import performance
from search.protocols import Engine, Scorer
from search.record import Commit, SearchResult, Status
from search.track import Track


class SearchStream:
    """Iterator over the commits of a search.

    Closing it (or leaving its `with` block, or dropping it) cancels the search and frees its streams. Errors arrive as
    `SearchFailed` (Ctrl-C as `SearchInterrupted`) with the cause chained and the audio committed so far in `partials`.
    """

    def __init__(self, commits: Iterator[Commit], tracks: list[Track], engine: Engine, scorer: Scorer | None) -> None:
        self._commits, self._tracks, self._engine, self._scorer = commits, tracks, engine, scorer
        self._failed = False

    def __iter__(self) -> SearchStream:
        return self

    def __next__(self) -> Commit:
        try:
            return next(self._commits)
        except StopIteration:
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Cancel what is left of the search."""
        getattr(self._commits, "close", lambda: None)()

    def __enter__(self) -> SearchStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, (Exception, KeyboardInterrupt)) and not isinstance(error, SearchFailed):
            raise self._failure(error) from error

    @property
    def results(self) -> list[SearchResult]:
        """One result a request, with what is committed by now; "cancelled" where the search has not ended."""
        return [self._result(track) for track in self._tracks]

    @property
    def result(self) -> SearchResult:
        """The first request's result: the only one, unless the search is a batch."""
        return self._result(self._tracks[0])

    def _failure(self, error: BaseException) -> SearchFailed:
        self._failed = True
        seconds = ", ".join(f"{result.seconds:.2f}" for result in self.results)
        message = f"{type(error).__name__}: {error} (after {seconds} s of committed audio)"
        kind = SearchInterrupted if isinstance(error, KeyboardInterrupt) else SearchFailed
        return kind(message, self.results)

    def _result(self, track: Track) -> SearchResult:
        status: Status = "failed" if self._failed else "cancelled"
        if track.ended:
            status = "hit_frame_limit" if track.hit_frame_limit else "complete"
        return SearchResult(
            audio=track.audio,
            sample_rate=self._engine.sample_rate,
            frames=track.all_frames,
            status=status,
            steps=track.steps,
            performance=performance(track, self._engine, self._scorer),
            config=track.config,
            request=track.request,
        )
