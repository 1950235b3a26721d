"""A head that makes trouble when the text says so, and a search with one head wherever it runs: to test workers."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from scorers.fake import FakeScorer, FakeScorerStream
from scorers.heads import Term
from scorers.placed import HeadError, HereStream, PlacedHead, PlacedStream
from search.protocols import Scores
from search.request import SpeechRequest

TROUBLE = re.compile(r"(\w+) at (\w+) (\d+)")


class Strange(Exception):  # noqa: N818
    """Cannot be sent to another process: reading it back needs two arguments."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} {where}")


def make(what: str) -> None:
    """One kind of trouble."""
    match what:
        case "raise":
            raise ValueError("told to fail")
        case "strange":
            raise Strange("told to be", "strange")
        case "leave":
            raise SystemExit(7)
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            ctypes.string_at(0)
        case "hang":
            time.sleep(600)
        case "spoil":  # as a recogniser was reported to
            torch.load = None  # type: ignore[assignment]
        case "print":
            sys.stdout.write("a library says hello\n")
            sys.stdout.flush()
        case _:
            raise AssertionError(what)


class Troubled(FakeScorer):
    """A fake scorer that reads its text: "raise at score 2, exit at fork 1", "delays 5", "who".

    Attributes:
        gate: a text with "wait at score 1" stays there until it is set.
        threads: every thread that has called the head.
    """

    name = "troubled"

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.threads = {threading.get_ident()}

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> TroubledStream:
        stream = TroubledStream(self, requests, n, sample_rate, hop)
        self.opened += 1
        stream.reach("open")
        return stream


class TroubledStream(FakeScorerStream):
    def __init__(self, head: Troubled, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> None:
        super().__init__(head, requests, n, sample_rate, hop)
        self._head, self._text = head, requests[0].text
        delays = re.search(r"delays (\d+)", self._text)
        self._random = random.Random(int(delays[1])) if delays else None
        self._calls = dict.fromkeys(("open", "score", "fork", "commit", "close"), 0)

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        self.reach("score")
        scores = super().score(pcm, lengths, finished)
        if "who" in self._text:
            inference = torch.is_inference_mode_enabled()
            scores.notes[0].update(pid=os.getpid(), threads=torch.get_num_threads(), inference=inference)
        return scores

    def fork(self, parents: Tensor) -> None:
        self.reach("fork")
        super().fork(parents)

    def commit(self, frames: Tensor) -> None:
        self.reach("commit")
        super().commit(frames)

    def close(self) -> None:
        self.reach("close")
        super().close()

    def reach(self, where: str) -> None:
        self._head.threads.add(threading.get_ident())
        self._calls[where] += 1
        if self._random is not None:
            time.sleep(self._random.choice([0.0, 0.0, 0.001, 0.004]))
        for what, place, call in TROUBLE.findall(self._text):
            if (place, int(call)) == (where, self._calls[where]):
                if what == "wait":
                    assert self._head.gate.wait(20), "nobody opened the gate"
                else:
                    make(what)


def load() -> Troubled:
    return Troubled()


def load_with(what: str) -> Troubled:
    make(what)
    return Troubled()


class Alone:
    """A scorer of one head, wherever it runs."""

    def __init__(self, head: PlacedHead) -> None:
        self.head, self.name, self.device = head, head.name, torch.device("cpu")
        self.terms: tuple[Term, ...] = head.terms

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> AloneStream:
        return AloneStream(self.head.open(requests, n, sample_rate, hop))


class AloneStream:
    def __init__(self, stream: PlacedStream) -> None:
        self._stream = stream
        self.fork, self.commit, self.close = stream.fork, stream.commit, stream.close

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        self._stream.begin(pcm, lengths, finished)
        return self._stream.result()


HOP = 240
Outcome = tuple[Any, ...]


def opened(head: PlacedHead, text: str = "plain", n: int = 4) -> PlacedStream:
    return head.open([SpeechRequest(text, id="it")], n, 24_000, HOP)


def hear(stream: PlacedStream, seed: int = 0, n: int = 4, frames: int = 3) -> None:
    """Begin a step with noise that is spoilt at once, as a search may do with its tensors."""
    pcm = torch.rand(n, frames * HOP, generator=torch.Generator().manual_seed(seed))
    lengths, finished = torch.full((n,), frames * HOP), torch.zeros(n, dtype=torch.bool)
    stream.begin(pcm, lengths, finished)
    if not isinstance(stream, HereStream):  # which hears at once
        for tensor in (pcm, lengths, finished):
            tensor.fill_(1)


def outcome(stream: PlacedStream) -> Outcome:
    """A result as something to compare: numbers and notes, or the words of the error."""
    try:
        scores = stream.result()
    except HeadError as error:
        return ("error", str(error))
    heads = {name: term.tolist() for name, term in scores.heads.items()}
    return ("scores", scores.reward.tolist(), heads, scores.notes)


def walk(head: PlacedHead, text: str, moves: Sequence[tuple[Sequence[int], int]]) -> list[Outcome]:
    """Steps that each end with a fork by the parents and a commit of as many frames, with tensors that are spoilt."""
    stream, found = opened(head, text), []
    for seed, (parents, frames) in enumerate(moves):
        hear(stream, seed)
        found.append(outcome(stream))
        rows, count = torch.tensor([list(parents)]), torch.tensor([frames])
        stream.fork(rows)
        stream.commit(count)
        rows.zero_()
        count.fill_(99)
    hear(stream, len(moves))
    found.append(outcome(stream))
    stream.close()
    return found
