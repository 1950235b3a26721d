"""The end of the program while a head is still at work, which nobody can stop."""

import os
import threading

import pytest

from experiments.cli import main, program
from scorers.head_thread import HeadThread
from scorers.placed import PlacedHead


def test_a_head_at_work_is_not_there_when_the_interpreter_is_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def load() -> PlacedHead:
        release.wait(60)
        raise RuntimeError("too late")

    ended: list[int] = []
    others, alive = set(threading.enumerate()), threading.enumerate
    monkeypatch.setattr(threading, "enumerate", lambda: [thread for thread in alive() if thread not in others])
    monkeypatch.setattr(program, "run", lambda _: 3)
    monkeypatch.setattr(os, "_exit", ended.append)
    head = HeadThread(load, lambda: None, 1)
    with pytest.raises(SystemExit):
        main()
    assert ended == [3]
    release.set()
    head.leave()
    with pytest.raises(SystemExit) as end:
        main()
    assert (ended, end.value.code) == ([3], 3)
