"""Heads in child processes: the same results as here, and whatever a child dies of, nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings

from engine.fake import FakeEngine
from scorers.placed import HeadError, Here, PlacedHead
from scorers.registry import load_head
from scorers.worker import InProcess
from search import ChunkSearch, SearchFailed, SpeechRequest
from tests.test_worker import MOVES, TROUBLE, head_threads, searched, wait_until
from tests.troubled import Alone, Troubled, hear, load, load_with, opened, outcome, walk

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def away() -> Iterator[InProcess]:
    with closing(InProcess(load)) as head:
        yield head


@pytest.fixture(autouse=True)
def _no_file_is_left_open(away: InProcess) -> Iterator[None]:
    """Neither a pipe nor a thread; the shared head's own do not count, and it is started before they are counted."""
    who(away)
    before, threads = open_files(), len(head_threads())
    yield
    who(away)
    assert (open_files(), len(head_threads())) == (before, threads)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def who(head: PlacedHead, text: str = "who") -> dict[str, int]:
    """The number of the process that answers, and of its threads."""
    stream = opened(head, text)
    hear(stream)
    note = stream.result().notes[0]
    stream.close()
    assert note["inference"]
    return {key: note[key] for key in ("pid", "threads")}


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    # One that has ended but was not yet waited for by whoever inherited it runs no more either.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("beam_width", [1, 2])
def test_a_search_with_a_fake_in_a_process_is_the_same_search(away: InProcess, beam_width: int) -> None:
    assert searched(away, beam_width, "fake") == searched(Here(load()), beam_width, "fake")


def test_a_search_with_the_listener_in_a_process_is_the_same_search() -> None:
    make = partial(load_head, "listener", {}, "cpu")
    with closing(InProcess(make)) as head:
        for beam_width in (1, 2):
            assert searched(head, beam_width, "builtin") == searched(Here(make()), beam_width, "builtin")


@settings(max_examples=20)
@given(moves=MOVES, trouble=TROUBLE)
def test_failures_and_forks_in_any_order_end_as_they_do_here(
    away: InProcess, moves: list[tuple[list[int], int]], trouble: str
) -> None:
    assert walk(away, trouble or "plain", moves) == walk(Here(Troubled()), trouble or "plain", moves)


def test_errors_bring_their_cause_and_its_place_along(away: InProcess) -> None:
    stream = opened(away, "raise at score 1")
    for seed in range(2):
        hear(stream, seed)
        with pytest.raises(HeadError, match="troubled: ValueError: told to fail") as failure:
            stream.result()
        cause = failure.value.__cause__
        assert isinstance(cause, ValueError)
        assert len(cause.__notes__) == 1
        assert "troubled.py" in cause.__notes__[0], "the child's own traceback"
    stream.close()


def test_streams_may_be_open_side_by_side(away: InProcess) -> None:
    streams = [opened(away), opened(away), opened(Here(Troubled()))]
    for seed in range(3):
        for stream in streams:
            hear(stream, seed)
        one, other, alone = map(outcome, streams)
        assert one == other == alone
        for stream in streams:
            stream.fork(torch.tensor([[1, 1, 3, 0]]))
    for stream in streams:
        stream.close()


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("exit at score 2", "ended with exit code 3"),
        ("kill at fork 1", "was ended by signal 9 (Killed)"),
        ("crash at commit 1", "was ended by signal 11 (Segmentation fault)"),
    ],
)
def test_a_child_that_dies_is_told_of_and_replaced(away: InProcess, text: str, ending: str) -> None:
    first = who(away)["pid"]
    found = walk(away, text, [([0, 0, 1, 1], 1)] * 3)
    assert found[-1] == found[-2] == ("error", f"troubled: its process {ending}")
    assert found[0] == walk(Here(Troubled()), "plain", [])[0]
    assert gone(first)
    assert who(away)["pid"] not in (first, os.getpid())
    assert walk(away, "plain", [([1, 2, 3, 0], 2)]) == walk(Here(Troubled()), "plain", [([1, 2, 3, 0], 2)])


def test_a_stream_that_cannot_be_opened(away: InProcess) -> None:
    with pytest.raises(HeadError, match="troubled: its process ended with exit code 3"):
        opened(away, "exit at open 1")
    with pytest.raises(ValueError, match="told to fail") as failure:
        opened(away, "raise at open 1")
    assert str(failure.value) == "told to fail"
    assert "troubled.py" in failure.value.__notes__[0], "the child's own traceback goes with the error"
    with pytest.raises(RuntimeError, match="Strange: told to be strange"):
        opened(away, "strange at open 1")


def test_a_late_child_is_ended_and_replaced(away: InProcess) -> None:
    first = who(away)["pid"]
    away.deadline_seconds = 0.3
    stream = opened(away, "hang at score 1")
    hear(stream)
    assert outcome(stream) == ("error", "troubled: no result came within 0.3 s, its deadline")
    away.deadline_seconds = 60.0
    wait_until(lambda: gone(first))
    assert who(away)["pid"] != first
    hear(stream)
    assert outcome(stream)[0] == "error", "it ended with its child"


def test_what_a_head_does_to_its_interpreter_stays_there(away: InProcess, capfd: pytest.CaptureFixture[str]) -> None:
    """Bug report B10: after a recogniser's first result `torch.load` was broken in the whole process.

    Nor do words that a library prints get into the audio or the JSON on our standard output.
    """
    os.kill(who(away)["pid"], signal.SIGKILL)  # the next one has this test's standard error
    load_before = torch.load
    assert walk(away, "spoil at score 1, print at score 1", []) == walk(Here(Troubled()), "plain", [])
    assert torch.load is load_before
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "a library says hello\n")


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (partial(load_head, "ears", {}, "cpu"), ValueError, "kind: 'ears' is not known"),
        (partial(load_with, "exit"), HeadError, "head: its process ended with exit code 3"),
    ],
)
def test_a_head_that_cannot_be_loaded_is_told_of_at_once(
    make: Callable[[], Troubled], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        InProcess(make)


def test_what_cannot_be_sent_or_counted_is_refused_before_a_process_starts() -> None:
    with pytest.raises(TypeError, match=r"load: .*<lambda>.* cannot be sent to a process: give a function of a module"):
        InProcess(lambda: Troubled())
    with pytest.raises(ValueError, match="threads: 0; it must be above 0"):
        InProcess(load, threads=0)


def test_threads_are_limited_in_the_child_and_closing_ends_it(away: InProcess) -> None:
    assert who(away)["threads"] == 1
    head = InProcess(load, threads=2)
    found = who(head)
    assert found["threads"] == 2
    stream = opened(head, "hang at score 1")
    hear(stream)
    head.close()
    head.close()
    assert gone(found["pid"])
    assert outcome(stream)[0] == "error"


def test_a_search_whose_head_dies_keeps_what_was_committed(away: InProcess) -> None:
    search = ChunkSearch(FakeEngine(), Alone(away))
    with pytest.raises(SearchFailed) as failure:
        search.generate(SpeechRequest("kill at score 3"), n=4, chunk_frames=3)
    assert "its process was ended by signal 9" in str(failure.value.__cause__)
    assert len(failure.value.partial.frames) == 6
    assert search.generate(SpeechRequest("plain"), n=4, chunk_frames=3).status == "complete"


PROGRAM = """
import signal
import sys
from scorers.worker import InProcess
from tests.test_worker_process import who
from tests.troubled import hear, load, opened

head = InProcess(load)  # with no guard of the main file: it must not run again in the child
pid = who(head)["pid"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs are without
try:
    print(pid, flush=True)
    sys.stdin.read()  # which ends when whoever tests this does
except KeyboardInterrupt:
    print(who(head)["pid"], flush=True)
stream = opened(head, "hang at score 1")
hear(stream)
print("busy", flush=True)
stream.result()
"""


def test_ctrl_c_is_the_parents_and_no_child_outlives_it(tmp_path: Path) -> None:
    """Ctrl-C reaches all of a terminal's processes: the child goes on, silent. A parent that is killed takes it along,
    even if it is busy."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    try:
        child = int(program.stdout.readline())
        os.killpg(program.pid, signal.SIGINT)
        assert int(program.stdout.readline()) == child
        assert program.stdout.readline() == "busy\n"
        time.sleep(0.1)
        assert not gone(child)
    finally:
        program.kill()
        noise = program.communicate()[1]
    wait_until(lambda: gone(child))
    assert noise == ""
