"""Heads in threads: the same results as in a row, whatever is late, full, failing, shared or closed."""

import gc
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache, partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.registry import load_engine
from scorers.fake import FakeScorer, FakeScorerStream
from scorers.heads import Clip, Judgement, Term
from scorers.placed import HeadError, Here, PlacedHead
from scorers.registry import load_head
from scorers.rereader import Rereader
from scorers.worker import InThread
from search import ChunkSearch, SpeechRequest
from search.protocols import Scores
from tests.troubled import HOP, Alone, Troubled, hear, load, opened, outcome, walk

SHORT = 0.15  # s, a deadline that is meant to pass

MOVES = st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 3)), max_size=5)
TROUBLE = st.sampled_from(["", "raise at score 2", "raise at fork 1", "raise at commit 2", "strange at fork 2"])


@pytest.fixture
def troubled() -> Troubled:
    return Troubled()


@pytest.fixture
def away(troubled: Troubled) -> Iterator[InThread]:
    with closing(InThread(lambda: troubled)) as head:
        yield head
        troubled.gate.set()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not head_threads()


def head_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "head"]


def wait_until(true: Callable[[], bool]) -> None:
    """What happens elsewhere has happened; a minute is never too short."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def impatient(queue: int) -> tuple[Troubled, InThread]:
    troubled = Troubled()
    return troubled, InThread(lambda: troubled, deadline_seconds=SHORT, queue=queue)


voice = cache(load_engine)


def searched(head: PlacedHead, beam_width: int, engine: str, seed: int = 3) -> tuple[object, ...]:
    """All that comes out of a whole search, and how often it forked away from the identity."""
    search = ChunkSearch(voice(engine), Alone(head))
    request = SpeechRequest("One two, three four five.", id="same")
    result = search.generate(request, n=4, beam_width=beam_width, chunk_frames=3, seed=seed, max_seconds=1.5)
    scores = [repr(step["scores"]) for step in result.steps]
    return result.audio.tobytes(), result.frames.tolist(), scores, [step["parents"] for step in result.steps]


@pytest.mark.parametrize("beam_width", [1, 2])
@pytest.mark.parametrize(("kind", "engine"), [("fake", "fake"), ("listener", "builtin")])
def test_a_search_with_a_head_in_a_thread_is_the_same_search(kind: str, engine: str, beam_width: int) -> None:
    make = partial(load_head, kind, {}, "cpu")
    with closing(InThread(make)) as head:
        here, there = (searched(place, beam_width, engine) for place in (Here(make()), head))
    assert here == there
    assert len(here[2]) > 3  # type: ignore[arg-type]
    assert any(parents != [0, 1, 2, 3] for parents in here[3])  # type: ignore[attr-defined]


@settings(max_examples=40)
@given(MOVES, TROUBLE, st.integers(0, 99))
def test_delays_failures_and_forks_in_any_order_end_as_they_do_here(
    moves: list[tuple[list[int], int]], trouble: str, seed: int
) -> None:
    text = f"{trouble} delays {seed}"
    with closing(InThread(load, queue=3)) as head:
        assert walk(head, text, moves) == walk(Here(load()), text, moves)


def test_the_search_goes_on_while_the_head_hears(troubled: Troubled, away: InThread) -> None:
    """The head waits for a gate that opens after the fork and commit which follow: neither may wait for the head."""
    stream, found = opened(away, "wait at score 1"), []
    hear(stream)
    stream.fork(torch.tensor([[3, 3, 1, 0]]))
    stream.commit(torch.tensor([2]))
    troubled.gate.set()
    found.append(outcome(stream))
    hear(stream, 1)
    found.append(outcome(stream))
    assert found == walk(Here(Troubled()), "plain", [([3, 3, 1, 0], 2)])


def test_one_thread_loads_and_calls_the_head() -> None:
    """Bug report E6: memory grew until a recogniser that several threads called was killed."""
    made: list[Troubled] = []

    def make() -> Troubled:
        made.append(Troubled())
        return made[0]

    head = InThread(make)
    with ThreadPoolExecutor(4) as callers:
        for _ in range(4):
            callers.submit(walk, head, "delays 1", [([1, 0, 3, 2], 1)] * 3)
    head.close()
    assert len(made[0].threads) == 1
    assert threading.get_ident() not in made[0].threads
    assert made[0].opened == made[0].closed == 4


def test_heads_compute_without_gradients_wherever_they_run(away: InThread) -> None:
    """Every thread has its own inference mode, and what the search's made may not be changed outside of one."""
    stream = opened(away, "who")
    hear(stream)
    assert stream.result().notes[0]["inference"]


def test_streams_may_be_open_side_by_side(away: InThread) -> None:
    one, other, alone = opened(away), opened(away), opened(Here(Troubled()))
    for seed in range(3):
        for stream in (one, other, alone):
            hear(stream, seed)
        assert outcome(one) == outcome(other) == outcome(alone)
        for stream in (one, other, alone):
            stream.fork(torch.tensor([[1, 1, 3, 0]]))


def test_a_late_answer_is_dropped_and_its_stream_stays_failed() -> None:
    troubled, head = impatient(queue=16)
    stream = opened(head, "wait at score 1")
    hear(stream)
    late = ("error", f"troubled: no result came within {SHORT} s, its deadline")
    assert outcome(stream) == late
    hear(stream, 1)
    assert outcome(stream) == late
    with pytest.raises(HeadError, match="troubled: no stream was opened within"):
        opened(head)
    troubled.gate.set()
    wait_until(lambda: troubled.opened == 2)
    hear(stream, 2)
    assert outcome(stream) == late
    head.deadline_seconds = 60.0
    assert walk(head, "plain", []) == walk(Here(Troubled()), "plain", [])
    stream.close()
    head.close()
    assert troubled.opened == troubled.closed, "a stream that was opened too late is closed too"


def test_a_queue_that_stays_full_fails_the_stream() -> None:
    troubled, head = impatient(queue=3)
    stream = opened(head, "wait at score 1")
    hear(stream)
    for _ in range(8):
        stream.fork(torch.tensor([[0, 1, 2, 3]]))
    assert outcome(stream) == ("error", "troubled: its queue was full until the deadline")
    troubled.gate.set()
    head.close()


def test_a_head_that_fails_takes_nothing_from_the_others(troubled: Troubled, away: InThread) -> None:
    failing = InThread(load)
    bad, good, plain = opened(failing, "raise at score 1"), opened(away, "wait at score 1"), opened(Here(Troubled()))
    for stream in (bad, good, plain):
        hear(stream)
    assert outcome(bad) == ("error", "troubled: ValueError: told to fail")
    troubled.gate.set()
    assert outcome(good) == outcome(plain)
    failing.close()


def test_errors_keep_their_cause(away: InThread) -> None:
    stream = opened(away, "leave at fork 1")
    stream.fork(torch.tensor([[1, 0, 3, 2]]))
    hear(stream)
    with pytest.raises(HeadError, match="troubled: SystemExit: 7") as failure:
        stream.result()
    assert isinstance(failure.value.__cause__, SystemExit)
    with pytest.raises(ValueError, match=r"^told to fail$"):
        opened(away, "raise at open 1")


def test_what_loading_raises_is_raised_at_once() -> None:
    with pytest.raises(ValueError, match="kind: 'ears' is not known"):
        InThread(partial(load_head, "ears", {}, "cpu"))
    with pytest.raises((AssertionError, RuntimeError), match="CUDA"):
        InThread(lambda: FakeScorer(device="cuda:63"))
    assert not head_threads()


@pytest.mark.parametrize(("option", "value"), [("deadline_seconds", 0.0), ("deadline_seconds", -1.0), ("queue", 0)])
def test_numbers_that_cannot_work_are_named(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option}: {value}; it must be above 0"):
        InThread(load, **{option: value})  # type: ignore[arg-type]


def test_closing_drops_what_waits_and_may_be_repeated(troubled: Troubled, away: InThread) -> None:
    busy, waiting = opened(away, "wait at score 1"), opened(away)
    hear(busy)
    hear(waiting)
    closing = threading.Thread(target=away.close)
    closing.start()
    wait_until(lambda: away.thread._leaving.is_set())
    troubled.gate.set()
    assert outcome(waiting) == ("error", "troubled: it is closed")
    closing.join()
    away.close()
    assert not head_threads()
    with pytest.raises(HeadError, match="troubled: it is closed"):
        opened(away)
    busy.close()


def test_a_closed_stream_says_so_and_frees_the_head_s(troubled: Troubled, away: InThread) -> None:
    stream = opened(away)
    stream.close()
    stream.close()
    hear(stream)
    assert outcome(stream) == ("error", "troubled: the stream is closed; open a new one")
    wait_until(lambda: troubled.closed == 1)


def test_a_head_that_nobody_holds_gives_its_thread_back() -> None:
    head = InThread(load)
    stream = opened(head)
    hear(stream)
    assert outcome(stream)[0] == "scores"
    del head, stream
    gc.collect()
    wait_until(lambda: not head_threads())


class Proud(FakeScorer):
    """A head that hands out the very tensor that it works with."""

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> FakeScorerStream:
        return ProudStream(self, requests, n, sample_rate, hop)


class ProudStream(FakeScorerStream):
    mine = torch.zeros(4)

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:  # noqa: ARG002
        self.mine += 1
        return Scores(self.mine, {"heard_seconds": self.mine}, [{}] * 4)


def test_what_was_found_does_not_change_afterwards() -> None:
    with closing(InThread(Proud)) as head:
        stream = opened(head)
        hear(stream)
        first = stream.result()
        hear(stream)
        stream.result()
    assert first.reward.tolist() == first.heads["heard_seconds"].tolist() == [1.0] * 4


class Loud:
    name, device, sample_rate, terms = "loud", torch.device("cpu"), 24_000, (Term("loud"),)

    def prepare(self, request: SpeechRequest) -> None:
        """Nothing."""

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        return [Judgement({"loud": float(abs(clip.pcm).mean())}) for clip in clips]


def test_rows_may_be_left_out_of_heads_that_hear_again() -> None:
    found = []
    for head in (InThread(lambda: Rereader(Loud())), Here(Rereader(Loud()))):
        stream, wanted = opened(head), torch.tensor([True, False, True, False])
        stream.begin(torch.ones(4, HOP), torch.full((4,), HOP), torch.zeros(4, dtype=torch.bool), wanted)
        wanted.fill_(True)
        found.append(stream.result())
        head.close()
    away, here = found
    assert repr(away) == repr(here)
    assert [math.isnan(loud) for loud in away.heads["loud"].tolist()] == [False, True, False, True]
