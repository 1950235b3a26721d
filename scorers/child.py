"""A head in a child process, spoken to through a pipe: every call waits for its answer, as if the head were here.

The child is a fresh interpreter. It copies no thread, lock or CUDA state of this one and, unlike what
`multiprocessing` spawns, does not run the program's main file again. Knows nothing of queues and deadlines: `worker.py`
has them.
"""

from __future__ import annotations

import itertools
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from scorers.heads import Head, Term
from scorers.placed import HeadError, Here, PlacedStream
from search.protocols import Scores
from search.request import SpeechRequest

_THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LEAVING_SECONDS = 2.0


class ChildHead:
    """A head that a child process holds. Starts the child when told to, and again when it has died.

    Attributes:
        name, terms, rereads: the head's, once the child has started.

    Args:
        load: makes the head, in the child; it is sent there by name, so it must stand at the top of a module.
        threads: that torch and OpenMP may use in the child.

    Raises:
        TypeError: `load` cannot be sent.
    """

    def __init__(self, load: Callable[[], Head], threads: int) -> None:
        try:
            self._load = pickle.dumps(load)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(f"load: {load!r} cannot be sent to a process: give a function of a module") from error
        self._threads = threads
        self._numbers = itertools.count()
        self._child: _Child | None = None
        self.name = "head"
        self.terms: tuple[Term, ...] = ()
        self.rereads = False

    def start(self) -> ChildHead:
        """Start the child and wait until it has loaded the head, unless it runs; raises what loading raises."""
        self._running()
        return self

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> ChildStream:
        child, number = self._running(), next(self._numbers)
        heard = [replace(request, prompt=None, unconditional=None) for request in requests]  # those are the engine's
        child.call("open", number, heard, n, sample_rate, hop)
        return ChildStream(child, number)

    def kill(self) -> None:
        """End the child at once, whatever it is doing; who waits for it gets `HeadError`."""
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()

    def _running(self) -> _Child:
        if self._child is not None and self._child.alive:
            return self._child
        self.close()
        self._child = child = _Child(self.name, self._threads)
        try:
            self.name, self.terms, self.rereads = child.call("load", self._load)
        except BaseException:
            child.end()
            raise
        child.name = self.name
        return child


class ChildStream:
    """A stream of the child's head. It ends with the child. Takes tensors on the CPU."""

    def __init__(self, child: _Child, number: int) -> None:
        self._child, self._number = child, number

    def begin(self, pcm: Tensor, lengths: Tensor, finished: Tensor, wanted: Tensor | None = None) -> None:
        rows = None if wanted is None else wanted.numpy()
        self._child.call("begin", self._number, pcm.numpy(), lengths.numpy(), finished.numpy(), rows)

    def result(self) -> Scores:
        reward, heads, notes = self._child.call("result", self._number)
        return Scores(torch.from_numpy(reward), {name: torch.from_numpy(heads[name]) for name in heads}, notes)

    def fork(self, parents: Tensor) -> None:
        self._child.call("fork", self._number, parents.numpy())

    def commit(self, frames: Tensor) -> None:
        self._child.call("commit", self._number, frames.numpy())

    def close(self) -> None:
        if self._child.alive:
            self._child.call("close", self._number)


class _Child:
    """One process and our end of its pipe.

    PCM goes through it too, which takes 0.13 ms for 8 rows of 0.8 s; shared memory would take 0.04. It goes as NumPy
    arrays: tensors would be read by `torch.load`, which is among the things that a head may break.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from scorers.child import serve; serve({theirs.fileno()}, {threads})"],
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the parent, which then closes its heads
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output may be the parent's audio or JSON
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
                | dict.fromkeys(_THREAD_LIMITS, str(threads)),
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, *message: Any) -> Any:
        """What the child answers; raises what it raised, or `HeadError` where it has died."""
        try:
            self._pipe.send_bytes(pickle.dumps(message))
            value, error, cause = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as lost:
            self.end()
            raise HeadError(f"{self.name}: its process {_ending(self._process.returncode)}") from lost
        if error is not None:
            raise error from cause
        return value

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Close the pipe, which tells the child to leave; one that does not is killed."""
        self._pipe.close()
        try:
            self._process.wait(_LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _ending(code: int) -> str:
    return f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"


def serve(handle: int, threads: int) -> None:
    """The child's life: answer what comes through the pipe until nobody holds the other end."""
    threading.Thread(target=_leave_with_parent, args=(handle,), daemon=True).start()
    torch.set_num_threads(threads)
    pipe, desk = Connection(handle), _Desk()
    while True:
        try:
            message = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        pipe.send_bytes(_answer(desk, message))


def _leave_with_parent(handle: int) -> None:
    """End this process when the other end of the pipe is gone, however the parent died and whatever the head does."""
    watch = select.poll()
    watch.register(handle, 0)  # a hang-up is always reported
    watch.poll()
    os._exit(0)


class _Desk:
    """The head in the child, and its open streams by number."""

    def __init__(self) -> None:
        self._streams: dict[int, PlacedStream] = {}

    def load(self, load: bytes) -> tuple[str, tuple[Term, ...], bool]:
        self._head = Here(pickle.loads(load)())
        return self._head.name, self._head.terms, self._head.rereads

    @torch.inference_mode()
    def do(self, verb: str, number: int, *arguments: Any) -> Any:
        if verb == "open":
            self._streams[number] = self._head.open(*arguments)
            return None
        stream = self._streams.pop(number, None) if verb == "close" else self._streams[number]
        if stream is None:
            return None
        found = getattr(stream, verb)(*(None if array is None else torch.from_numpy(array) for array in arguments))
        if not isinstance(found, Scores):
            return None
        heads = {name: term.numpy(force=True) for name, term in found.heads.items()}
        return found.reward.numpy(force=True), heads, found.notes


def _answer(desk: _Desk, message: tuple[Any, ...]) -> bytes:
    """The value, the error and its cause, of which the parent can read all."""
    try:
        value = desk.load(message[1]) if message[0] == "load" else desk.do(*message)
        return pickle.dumps((value, None, None))
    except Exception as error:
        root = error.__cause__ or error
        if not hasattr(root, "__notes__"):  # a stream tells of its failure whenever it is asked
            root.add_note("In the process of the head:\n" + "".join(traceback.format_exception(root)))
        cause = None if error.__cause__ is None else _portable(error.__cause__)
        return pickle.dumps((None, _portable(error), cause))


def _portable(error: BaseException) -> BaseException:
    """The error itself if it can be sent as it is, else one that says the same."""
    try:
        same = repr(pickle.loads(pickle.dumps(error))) == repr(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")
