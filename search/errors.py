"""What a caller catches. Knows nothing about why a search failed: the cause is chained to the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from search.record import SearchResult


class SearchFailed(RuntimeError):  # noqa: N818 - reads as what happened, as KeyboardInterrupt does
    """A search stopped early. `__cause__` says why; nothing that was committed is lost.

    Attributes:
        partials: one result a request, in the order of the requests, each with the audio committed before the failure.
    """

    def __init__(self, message: str, partials: list[SearchResult]) -> None:
        super().__init__(message)
        self.partials = partials

    @property
    def partial(self) -> SearchResult:
        """The first request's partial result: the only one, unless the search was a batch."""
        return self.partials[0]


class SearchInterrupted(SearchFailed, KeyboardInterrupt):
    """The user pressed Ctrl-C. Also a `KeyboardInterrupt`, so that programs which handle that one still stop."""
