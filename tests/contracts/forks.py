"""Laws 3, 7 and 8: what a fork does to the state of a stream. Looks into the state, as far as dataclasses show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from search import SpeechRequest
from search.protocols import Chunk, Codec, Scorer, Stream
from search.state import BranchCache, row_index
from tests.contracts.counting import Work
from tests.contracts.subject import Subject, close_to, closing, frame_tolerance, holds, some_parents

Opened = Callable[[], Stream]
"""Opens a stream of two requests and three rows that has made, decoded or heard something."""

BATCH, ROWS = 2, 3


def opened_codec(codec: Codec, pool: Tensor) -> Opened:
    def opened() -> Stream:
        stream = codec.open(BATCH, ROWS)
        frames = pool[torch.arange(BATCH * ROWS * 4) % len(pool)].unflatten(0, (BATCH * ROWS, 4))
        stream.decode(Chunk(frames, torch.full((BATCH * ROWS,), 4), torch.zeros(BATCH * ROWS, dtype=torch.bool)))
        return stream

    return opened


def opened_scorer(scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int, hop: int) -> Opened:
    def opened() -> Stream:
        stream = scorer.open(requests[:BATCH], ROWS, rate, hop)
        rows = BATCH * ROWS
        heard = pcm[torch.arange(rows * 6 * hop) % len(pcm)].view(rows, -1)
        stream.score(heard, torch.full((rows,), 6 * hop), torch.zeros(rows, dtype=torch.bool))
        return stream

    return opened


def opened_engine(subject: Subject) -> Opened:
    def opened() -> Stream:
        stream = subject.engine.open(subject.requests[:BATCH], ROWS, subject.sampling)
        stream.advance(3)
        return stream

    return opened


def futures_follow_the_parent(subject: Subject) -> None:
    """Law 3: what a row says next depends on its parent, not on what the other rows forked from, nor on commits."""
    n = 4

    @holds(subject, data=st.data(), before=st.integers(1, 5), after=st.integers(1, 5), which=st.integers(0, 2))
    def _(data: st.DataObject, before: int, after: int, which: int) -> None:
        def future(parents: Tensor, committed: int = 0) -> Chunk:
            with closing(subject.engine.open([subject.requests[which]], n, subject.sampling)) as stream:
                stream.advance(before)
                stream.fork(parents)
                stream.commit(torch.tensor([committed]))
                return stream.advance(after)

        parents = some_parents(data, 1, n)
        some = future(parents)
        for row in range(n):
            constant = parents[:, row : row + 1].expand(1, n)
            with closing(subject.engine.open([subject.requests[which]], n, subject.sampling)) as stream:
                spoken = int(stream.advance(before).lengths[int(parents[0, row])])
            for committed in (0, spoken):
                same = future(constant, committed)
                length = int(some.lengths[row])
                assert int(same.lengths[row]) == length, "a fork or a commit changed when a row ends"
                tolerance = frame_tolerance(subject, some.frames)
                close_to(same.frames[row, :length], some.frames[row, :length], tolerance, "what a row says next")


def tensors_of(value: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Tensor]]:
    """All tensors that a stream can reach, but for the weights of networks and what engines share."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (nn.Module, type)):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_of(item, f"{path}[{key!r}]", seen)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from tensors_of(item, f"{path}[{place}]", seen)
    elif hasattr(value, "__dict__") and not callable(value):
        for name, item in vars(value).items():
            yield from tensors_of(item, f"{path}.{name}", seen)


def states_of(stream: Any) -> list[Any]:
    """The mutable dataclasses that a stream holds directly: its state."""
    held = [value for value in vars(stream).values() if is_dataclass(value) and not isinstance(value, type)]
    return [value for value in held if not value.__dataclass_params__.frozen]  # type: ignore[union-attr]


def slots_of(state: Any, path: str) -> Iterator[tuple[Any, str, str, Any]]:
    """(owner, field, path, value) of every unshared dataclass field, at any depth."""
    for part in fields(state):
        if part.metadata.get("shared"):
            continue
        value, where = getattr(state, part.name), f"{path}.{part.name}"
        yield state, part.name, where, value
        if is_dataclass(value):
            yield from slots_of(value, where)


def rows_of(state: Any) -> dict[str, Tensor]:
    """Everything in a state that belongs to single rows, rows first."""
    found: dict[str, Tensor] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, Tensor):
            found[path] = value.clone()
        elif isinstance(value, BranchCache):
            used = max(value._tail_length)
            found[path] = value._tail[..., :used, :].flatten(2, 3).movedim(2, 0).clone()
        elif isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                visit(item, f"{path}[{place}]")
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(item, f"{path}[{key!r}]")
        elif is_dataclass(value):
            for part in fields(value):
                if not part.metadata.get("shared"):
                    visit(getattr(value, part.name), f"{path}.{part.name}")

    visit(state, type(state).__name__)
    return found


def a_fork_moves_every_part(opened: Opened, subject: Subject | int) -> None:
    """Laws 3 and 7: after a fork every per-row tensor is the parent's, bit for bit, at any depth of the state."""

    @holds(subject, data=st.data())
    def _(data: st.DataObject) -> None:
        parents = some_parents(data, BATCH, ROWS)
        with closing(opened()) as stream:
            before = [rows_of(state) for state in states_of(stream)]
            assert any(before), f"{type(stream).__name__} keeps no state in a dataclass of its own"
            stream.fork(parents)
            for old, state in zip(before, states_of(stream), strict=True):
                for path, after in rows_of(state).items():
                    sides = len(after) // (BATCH * ROWS)
                    index = torch.cat([row_index(parents) + side * BATCH * ROWS for side in range(sides)])
                    close_to(after, old[path][index], 0.0, f"{path} after a fork")


def identity_forks_copy_nothing(opened: Opened) -> None:
    """Law 7, first half: no tensor moves and none is written to."""
    with closing(opened()) as stream:
        places = {path: tensor.data_ptr() for path, tensor in tensors_of(stream)}
        assert places, f"{type(stream).__name__} holds no tensor"
        with Work() as work:
            stream.fork(torch.arange(ROWS).repeat(BATCH, 1))
        for path, tensor in tensors_of(stream):
            assert places[path] == tensor.data_ptr(), f"{path} was copied by an identity fork"
            assert tensor.untyped_storage().data_ptr() not in work.written, f"{path} was written by an identity fork"


def permutations_are_undone(opened: Opened, subject: Subject | int) -> None:
    """Law 7, second half: a permutation and its inverse restore every tensor bitwise."""

    @holds(subject, data=st.data())
    def _(data: st.DataObject) -> None:
        order = torch.tensor([data.draw(st.permutations(range(ROWS))) for _ in range(BATCH)])
        with closing(opened()) as stream:
            before = {path: tensor.clone() for path, tensor in tensors_of(stream)}
            stream.fork(order)
            stream.fork(order.argsort(1))
            for path, tensor in tensors_of(stream):
                close_to(tensor, before[path], 0.0, f"{path} after a permutation and its inverse")


class Alien:
    """State of a kind that nobody has heard of."""


def unknown_state_raises(opened: Opened) -> None:
    """Law 8: in whatever field the unknown lies, a fork raises `TypeError` and names it."""
    with closing(opened()) as stream:
        slots = [slot for state in states_of(stream) for slot in slots_of(state, type(state).__name__)]
    assert slots, f"{type(stream).__name__} keeps no state in a dataclass of its own"
    for place in range(len(slots)):
        with closing(opened()) as stream:
            mine = [slot for state in states_of(stream) for slot in slots_of(state, type(state).__name__)]
            owner, name, path, _ = mine[place]
            setattr(owner, name, Alien())
            message = None
            try:
                stream.fork(torch.tensor([[ROWS - 1] * ROWS] * BATCH))
            except TypeError as error:
                message = str(error)
            assert message is not None, f"{path} holds an unknown object, and a fork skipped it"
            assert name in message, f"the error for {path} does not name it: {message}"
