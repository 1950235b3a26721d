"""The loop on fakes: failures lose nothing and leak nothing, and what is refused before anything runs."""

import gc
from typing import Any

import numpy as np
import pytest
import torch

from codec.fake import FakeCodec
from engine.fake import FakeEngine, FakeVoice
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SearchConfig, SearchFailed, SearchInterrupted, SpeechRequest
from search.protocols import Chunk
from search.record import Candidates
from search.state import BranchCache
from search.track import Track, hear_all
from tests.fake_search import INF, NAN, TEXT, all_closed, search


def failing(search: ChunkSearch, **settings: Any) -> SearchFailed:
    with pytest.raises(SearchFailed) as caught:
        search.generate(TEXT, **{"n": 3, "chunk_frames": 4, **settings})
    assert all_closed(search)
    return caught.value


def test_unknown_engine_state_stops_the_search() -> None:
    """Bug report A1: a cache under a name that the reorder did not know was skipped; wrong output, no error."""
    error = failing(search(FakeVoice(alien_state=True)))
    assert isinstance(error.__cause__, TypeError)
    assert "ssm_state" in str(error)


@pytest.mark.parametrize("kind", [RuntimeError, torch.OutOfMemoryError, ValueError])
def test_an_engine_that_fails_loses_nothing(kind: type[Exception]) -> None:
    error = failing(search(FakeVoice(fails_at=9, error=kind)))
    assert type(error.__cause__) is kind
    assert error.partial.status == "failed"
    assert len(error.partial.frames) == 8
    assert len(error.partial.steps) == 2
    assert "told to fail at frame 9" in str(error)
    assert "after 0.64 s of committed audio" in str(error)
    whole = search().generate(TEXT, n=3, chunk_frames=4)
    assert np.array_equal(error.partial.audio, whole.audio[:64])


def test_a_scorer_that_fails_loses_nothing() -> None:
    error = failing(search(taste=FakeTaste(fails_at=3)))
    assert len(error.partial.frames) == 8
    assert error.partial.performance["actual_seconds"] == 0.64


def test_an_interrupt_still_is_one() -> None:
    made = search(taste=FakeTaste(fails_at=2, error=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as caught:
        made.generate(TEXT, n=2)
    assert isinstance(caught.value, SearchInterrupted)
    assert caught.value.partial.seconds == 0.8
    assert all_closed(made)


def test_an_exit_of_the_program_is_not_turned_into_a_failure() -> None:
    made = search(taste=FakeTaste(fails_at=2, error=SystemExit))
    with pytest.raises(SystemExit):
        made.generate(TEXT, n=2)
    assert all_closed(made)

    def leave(*_: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        search().generate(TEXT, n=2, on_commit=leave)


def test_a_callback_that_fails() -> None:
    played: list[np.ndarray] = []

    def play(segment: np.ndarray, _: dict[str, Any]) -> None:
        played.append(segment)
        raise OSError("no sound card")

    error = failing(search(), on_commit=play)
    assert isinstance(error.__cause__, OSError)
    assert len(played) == 1
    assert np.array_equal(error.partial.audio, played[0])


def test_an_observer_that_fails() -> None:
    def look(_: Candidates) -> None:
        raise LookupError("disk full")

    assert isinstance(failing(search(), on_step=look).__cause__, LookupError)


def test_in_a_batch_those_that_had_ended_are_complete() -> None:
    made = search(FakeVoice(fails_at=15))
    with pytest.raises(SearchFailed) as caught:
        made.generate_batch([TEXT, SpeechRequest("hi", id="hi")], n=3, chunk_frames=4)
    assert [partial.status for partial in caught.value.partials] == ["failed", "complete"]
    alone = search().generate(SpeechRequest("hi", id="hi"), n=3, chunk_frames=4)
    assert np.array_equal(caught.value.partials[1].audio, alone.audio)


@pytest.mark.parametrize("how", ["close", "with", "drop"])
def test_a_search_that_is_left_early_is_cancelled(how: str) -> None:
    made = search()
    stream = made.stream(TEXT, n=3, chunk_frames=4)
    first = next(stream)
    if how == "close":
        stream.close()
        stream.close()
    elif how == "with":
        with stream:
            pass
    result = stream.result
    if how == "drop":
        del stream
        gc.collect()
    assert all_closed(made)
    assert result.status == "cancelled"
    assert np.array_equal(result.audio, first.segment)


def test_a_search_that_is_never_begun_opens_nothing() -> None:
    made = search()
    stream = made.stream(TEXT)
    stream.close()
    assert made.engine.opened == 0  # type: ignore[attr-defined]
    assert (stream.result.status, len(stream.result.audio)) == ("cancelled", 0)
    assert list(stream) == []


def test_an_engine_that_cannot_open_closes_what_was_open() -> None:
    with pytest.raises(SearchFailed, match="voice: the fake engine does not know it"):
        search().generate(SpeechRequest("hi", voice="nobody"), n=1)

    class NoScorer(FakeScorer):
        def open(self, *_: Any) -> Any:
            raise RuntimeError("no ears")

    made = ChunkSearch(FakeEngine(), NoScorer())
    with pytest.raises(SearchFailed, match="no ears"):
        made.generate(TEXT)
    assert all_closed(made)


def test_a_hundred_failures_leak_nothing() -> None:
    """Bug report C6: every lost end kept its codec slot, until the capacity was exhausted."""
    made = search()
    expected = made.generate(TEXT, n=2, chunk_frames=6).audio
    for place in range(100):
        taste = FakeTaste(fails_at=1 + place % 3) if place % 2 else FakeTaste()
        made.scorer.options = taste  # type: ignore[union-attr]
        if place % 2:
            failing(made, n=2, chunk_frames=6)
        else:
            stream = made.stream(TEXT, n=2, chunk_frames=6)
            next(stream)
            stream.close()
    gc.collect()
    assert sum(type(thing) is BranchCache for thing in gc.get_objects()) <= 1
    made.scorer.options = FakeTaste()  # type: ignore[union-attr]
    assert np.array_equal(made.generate(TEXT, n=2, chunk_frames=6).audio, expected)
    assert all_closed(made)


def test_engines_that_break_their_promise_are_named() -> None:
    class Stalled(FakeEngine):
        def open(self, *arguments: Any) -> Any:
            stream = super().open(*arguments)
            advance = stream.advance
            stream.advance = lambda frames: advance(0)  # type: ignore[method-assign]  # noqa: ARG005
            return stream

    with pytest.raises(SearchFailed, match="engine 'fake': no frames, though not all rows have finished"):
        ChunkSearch(Stalled(), FakeScorer()).generate(TEXT, n=2)


def test_a_text_or_a_dictionary_is_answered_with_what_to_give() -> None:
    with pytest.raises(TypeError, match=r"requests: 'hello' is a str; give SpeechRequest\(text=\.\.\.\)"):
        search().generate("hello")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"config: {'n': 4} is a dict; give a SearchConfig"):
        search().generate(TEXT, {"n": 4})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [NAN, INF])
def test_samples_that_are_not_finite_stop_the_search_and_padding_does_not(value: float) -> None:
    track = Track(TEXT, 0, SearchConfig(n=2), limit=10, hop=4, frame_rate=FakeCodec().frame_rate)
    frames, finished = torch.zeros(2, 3, 1, dtype=torch.int64), torch.zeros(2, dtype=torch.bool)
    chunk = Chunk(frames, torch.tensor([3, 2]), finished)
    pcm = torch.zeros(2, 12)
    pcm[1, 8] = value
    assert hear_all([track], chunk, pcm, "fake").tolist() == [3, 2]
    pcm[1, 7] = value
    with pytest.raises(RuntimeError, match="engine 'fake': samples of candidate 1 are not finite"):
        hear_all([track], chunk, pcm, "fake")
