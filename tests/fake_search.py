"""Searches on fakes, as the tests of the loop make them. Knows no law."""

import math
from typing import Any

from codec.fake import FakeCodec
from engine.fake import FakeEngine, FakeVoice
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SpeechRequest

TEXT = SpeechRequest("one two three four five six", id="six")
NAN, INF = math.nan, math.inf


def search(voice: FakeVoice | None = None, taste: FakeTaste | None = None, **codec: Any) -> ChunkSearch:
    return ChunkSearch(FakeEngine(voice, FakeCodec(**codec)), FakeScorer(taste))


def all_closed(search: ChunkSearch) -> bool:
    parts: list[Any] = [search.engine, search.engine.codec, search.scorer]
    return all(part.opened == part.closed for part in parts)


def scripted(*steps: tuple[float, ...], **more: Any) -> FakeTaste:
    return FakeTaste(script=steps, **more)
