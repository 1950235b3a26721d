"""The walk that forks every part of a state, and names what it cannot fork."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from search.state import BranchCache, fork_rows, is_identity, row_index, shared


@dataclass
class Inner:
    ring: Tensor
    parts: list[Tensor] = field(default_factory=list)


@dataclass
class Whole:
    rows: Tensor
    inner: Inner
    named: dict[str, Tensor]
    cache: BranchCache
    nothing: None = None
    count: int = field(default=0, metadata={"shared": True})
    table: Tensor = field(default_factory=lambda: torch.arange(3), metadata={"shared": True})


def whole(batch: int, n: int, sides: int = 1) -> Whole:
    rows = batch * n
    cache = BranchCache(layers=1, groups=batch * sides, n=n, kv_heads=1, head_dim=2)
    value = torch.arange(float(batch * sides * n * 2)).view(batch * sides, n, 1, 1, 2)
    cache.extend(1).attend(0, value, value, value)
    return Whole(
        rows=torch.arange(rows * sides),
        inner=Inner(torch.arange(rows * 2).view(rows, 2), [torch.arange(rows)]),
        named={"a": torch.arange(rows)},
        cache=cache,
    )


@given(data=st.data(), batch=st.integers(1, 3), n=st.integers(1, 4), sides=st.integers(1, 2))
def test_every_part_of_a_state_follows(data: st.DataObject, batch: int, n: int, sides: int) -> None:
    """Bug report A2: a loop over top-level tensors left nested caches behind, and children heard another row's past."""
    parents = torch.tensor([data.draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)) for _ in range(batch)])
    value = whole(batch, n, sides)
    fork_rows(value, parents)
    index = row_index(parents)
    assert value.inner.ring[:, 0].tolist() == (index * 2).tolist()
    assert value.inner.parts[0].tolist() == index.tolist()
    assert value.named["a"].tolist() == index.tolist()
    both = [int(i) + side * batch * n for side in range(sides) for i in index]
    assert value.rows.tolist() == both
    assert value.cache._tail[0, 0, :, :, 0, 0, 0].flatten().tolist() == [2.0 * i for i in both]
    assert value.count == 0
    assert value.table.tolist() == [0, 1, 2]


def test_a_fork_owns_its_memory() -> None:
    value = whole(1, 3)
    before = value.inner.ring
    fork_rows(value, torch.tensor([[1, 1, 0]]))
    value.inner.ring[0] = -1
    assert value.inner.ring[1].tolist() == [2, 3], "children of one parent are strangers"
    assert before.tolist() == [[0, 1], [2, 3], [4, 5]], "and so is the state before"


def test_an_identity_fork_of_a_state_copies_nothing() -> None:
    value = whole(2, 3)
    tensors = [value.rows, value.inner.ring, value.inner.parts[0], value.named["a"], value.cache._tail]
    marks = [(t.data_ptr(), t._version) for t in tensors]
    fork_rows(value, torch.arange(3).repeat(2, 1))
    after = [value.rows, value.inner.ring, value.inner.parts[0], value.named["a"], value.cache._tail]
    assert marks == [(t.data_ptr(), t._version) for t in after]


class SsmState:
    """What a new kind of layer might carry."""


@pytest.mark.parametrize(
    ("alien", "message"),
    [
        (SsmState(), r"Whole\.inner\.parts\[1\]: a SsmState cannot be forked"),
        (7, r"Whole\.inner\.parts\[1\]: a int cannot be forked"),
        ((torch.zeros(6),), r"Whole\.inner\.parts\[1\]: a tuple cannot be forked"),
        (torch.tensor(1.0), r"Whole\.inner\.parts\[1\]: shape \(\) does not have 6 rows"),
        (torch.zeros(5, 6), r"Whole\.inner\.parts\[1\]: shape \(5, 6\) does not have 6 rows"),
        (torch.zeros(24, 6), r"Whole\.inner\.parts\[1\]: shape \(24, 6\) does not have 6 rows"),
    ],
)
def test_unknown_state_raises_and_is_named(alien: object, message: str) -> None:
    """Bug report A1: beam search skipped caches that lived under a name it did not know; wrong output, no error."""
    value = whole(2, 3)
    value.inner.parts.append(alien)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=message):
        fork_rows(value, torch.tensor([[0, 0, 0], [0, 1, 2]]))


def test_unknown_entries_of_a_dict_are_named() -> None:
    value = whole(1, 2)
    value.named["mems"] = object()  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"Whole\.named\['mems'\]"):
        fork_rows(value, torch.tensor([[1, 1]]))


def test_helpers() -> None:
    assert is_identity(torch.tensor([[0, 1, 2], [0, 1, 2]]))
    assert not is_identity(torch.tensor([[0, 1, 2], [0, 2, 1]]))
    assert row_index(torch.tensor([[1, 1], [0, 1]])).tolist() == [1, 1, 2, 3]
    assert shared().metadata == {"shared": True}
