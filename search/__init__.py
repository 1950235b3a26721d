"""Reward-guided streaming search over any autoregressive text-to-speech model.

This package knows requests, streams and rewards; it does not know a single model.
It imports torch and numpy only.
"""

from search.config import Sampling, SearchConfig
from search.errors import SearchFailed, SearchInterrupted
from search.loop import ChunkSearch
from search.record import Commit, SearchResult
from search.request import SpeechRequest

__all__ = [
    "ChunkSearch",
    "Commit",
    "Sampling",
    "SearchConfig",
    "SearchFailed",
    "SearchInterrupted",
    "SearchResult",
    "SpeechRequest",
]
