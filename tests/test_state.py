"""The forkable cache and the walk that forks everything else, against attention written out plainly."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from search import state
from search.state import BranchCache, fork_rows, is_identity, row_index, shared

HEADS, KV_HEADS, WIDTH, LAYERS = 4, 2, 8, 2


def plain_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """One row: q [H_q, L, d], k and v [H_kv, L, d], every position seeing its past."""
    length, repeat = q.shape[1], q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)
    scores = q.double() @ k.double().transpose(1, 2) * WIDTH**-0.5
    at = torch.arange(length)
    hidden = at[None] > at[:, None]
    if window is not None:
        hidden |= at[None] <= at[:, None] - window
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v.double()).float()


class Row:
    """What one row has been fed, position by position, and what attention made of it: lists of [LAYERS, heads, d]."""

    def __init__(self) -> None:
        self.q: list[Tensor] = []
        self.k: list[Tensor] = []
        self.v: list[Tensor] = []
        self.out: list[Tensor] = []

    def copy(self) -> "Row":
        other = Row()
        other.q, other.k, other.v, other.out = list(self.q), list(self.k), list(self.v), list(self.out)
        return other

    def expected(self, window: int | None) -> Tensor:
        layers = [
            plain_attention(*(torch.stack(part, 2)[layer] for part in (self.q, self.k, self.v)), window)
            for layer in range(LAYERS)
        ]
        return torch.stack(layers)  # [LAYERS, H_q, L, d]


class Model:
    """A cache beside plain lists of all that its rows were fed."""

    def __init__(self, groups: int, n: int, window: int | None, seed: int = 0) -> None:
        self.cache = BranchCache(layers=LAYERS, groups=groups, n=n, kv_heads=KV_HEADS, head_dim=WIDTH, window=window)
        self.rows = [[Row() for _ in range(n)] for _ in range(groups)]
        self.groups, self.n, self.window = groups, n, window
        self.seed = seed

    def tokens(self, group: int, row: int, position: int, salt: int) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of one position, [LAYERS, heads, d]: of the row's own making, whatever the batch is."""
        generator = torch.Generator().manual_seed(hash((self.seed, group, row, position, salt)) % (1 << 62))
        return tuple(torch.randn(LAYERS, heads, WIDTH, generator=generator) for heads in (HEADS, KV_HEADS, KV_HEADS))  # type: ignore[return-value]

    def prefill(self, lengths: list[int]) -> None:
        step = self.cache.prefill(torch.tensor(lengths))
        longest = max(lengths)
        assert step.positions.tolist() == [list(range(longest))] * self.groups
        fed = [[self.tokens(group, -1, at, 0) for at in range(longest)] for group in range(self.groups)]
        q, k, v = (torch.stack([torch.stack([t[part] for t in row], 2) for row in fed], 1) for part in range(3))
        outs = torch.stack([step.attend(layer, q[layer], k[layer], v[layer]) for layer in range(LAYERS)])
        for group, length in enumerate(lengths):
            for row in self.rows[group]:
                for at in range(length):
                    row.q.append(fed[group][at][0])
                    row.k.append(fed[group][at][1])
                    row.v.append(fed[group][at][2])
                    row.out.append(outs[:, group, :, at])

    def extend(self, frames: int, active: list[bool] | None = None, salt: int = 0) -> None:
        grows = active or [True] * self.groups
        starts = [c + p for c, p in zip(self.cache.committed, self.cache.pending, strict=True)]
        step = self.cache.extend(frames, None if active is None else torch.tensor(active))
        fed = [
            [[self.tokens(g, i, starts[g] + t, salt) for t in range(frames)] for i in range(self.n)]
            for g in range(self.groups)
        ]
        assert step.positions.tolist() == [[list(range(s, s + frames))] * self.n for s in starts]
        q, k, v = (
            torch.stack([torch.stack([torch.stack([t[part] for t in row], 2) for row in group], 1) for group in fed], 1)
            for part in range(3)
        )
        outs = torch.stack([step.attend(layer, q[layer], k[layer], v[layer]) for layer in range(LAYERS)])
        for group in (g for g in range(self.groups) if grows[g]):
            for i, row in enumerate(self.rows[group]):
                for t in range(frames):
                    row.q.append(fed[group][i][t][0])
                    row.k.append(fed[group][i][t][1])
                    row.v.append(fed[group][i][t][2])
                    row.out.append(outs[:, group, i, :, t])

    def fork(self, parents: list[list[int]]) -> None:
        self.cache.fork(torch.tensor(parents))
        self.rows = [[group[p].copy() for p in row] for group, row in zip(self.rows, parents, strict=True)]

    def commit(self, frames: list[int]) -> None:
        self.cache.commit(torch.tensor(frames))

    def check(self) -> None:
        for group in self.rows:
            for row in group:
                if row.out:
                    torch.testing.assert_close(torch.stack(row.out, 2), row.expected(self.window), rtol=1e-5, atol=1e-5)


def walk(data: st.DataObject, model: Model, steps: int) -> None:
    """Random extends, forks and commits, as a search makes them."""
    groups, n = model.groups, model.n
    for step in range(steps):
        active = data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups))
        model.extend(data.draw(st.integers(1, 9)), None if all(active) else active, step)
        parents = [data.draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)) for _ in range(groups)]
        if data.draw(st.booleans()):
            model.fork(parents)
        together = [[row[0]] * n for row in parents]
        if data.draw(st.booleans()):
            model.fork(together)
            model.commit([data.draw(st.integers(0, pending)) for pending in model.cache.pending])


@settings(max_examples=40)
@given(
    data=st.data(),
    groups=st.integers(1, 3),
    n=st.integers(1, 4),
    window=st.sampled_from([None, 1, 2, 7, 30]),
    prefill=st.booleans(),
)
def test_attention_is_that_of_the_rows_own_history(
    data: st.DataObject, groups: int, n: int, window: int | None, prefill: bool
) -> None:
    model = Model(groups, n, window)
    if prefill:
        model.prefill(data.draw(st.lists(st.integers(1, 20), min_size=groups, max_size=groups)))
    walk(data, model, data.draw(st.integers(1, 5)))
    model.check()


def outputs(model: Model, group: int, rows: int) -> list[Tensor]:
    return [torch.stack(row.out, 2) for row in model.rows[group][:rows]]


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=2, max_size=3),
    n=st.integers(1, 3),
    more=st.integers(0, 5),
    chunks=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    window=st.sampled_from([None, 9]),
)
def test_rows_come_out_bitwise_alike_in_any_company(
    lengths: list[int], n: int, more: int, chunks: list[int], window: int | None
) -> None:
    """Bug reports B3, B4: neither more candidates nor batch mates of other lengths may change a bit."""

    def run(lengths: list[int], n: int) -> Model:
        model = Model(len(lengths), n, window)
        model.prefill(lengths)
        for step, frames in enumerate(chunks):
            model.extend(frames, salt=step)
            model.fork([[0] * n] * len(lengths))
            model.commit([frames - step % 2] * len(lengths))
        return model

    together, alone = run(lengths, n + more), run(lengths[:1], n)
    for mine, theirs in zip(outputs(alone, 0, n), outputs(together, 0, n), strict=True):
        assert torch.equal(mine, theirs)


def test_long_histories_are_bitwise_alike_too() -> None:
    """Past 128 positions a matrix kernel may split its sums, and a longer batch mate would move the split."""

    def run(lengths: list[int], n: int) -> Model:
        model = Model(len(lengths), n, None)
        model.prefill(lengths)
        for step in range(3):
            model.extend(30, salt=step)
            model.commit([0 if step else 30 * (n == 1)] * len(lengths))
        return model

    alone = run([150], 1)
    for lengths in ([150, 400], [150, 3]):
        assert torch.equal(outputs(alone, 0, 1)[0], outputs(run(lengths, 1), 0, 1)[0])
    more = Model(1, 5, None)
    more.prefill([150])
    fewer = Model(1, 2, None)
    fewer.prefill([150])
    for step in range(6):
        for model in (more, fewer):
            model.extend(30, salt=step)
    for mine, theirs in zip(outputs(fewer, 0, 2), outputs(more, 0, 2), strict=True):
        assert torch.equal(mine, theirs)


@given(data=st.data(), groups=st.integers(1, 3), n=st.integers(2, 5))
@settings(max_examples=20)
def test_a_permutation_and_its_inverse_restore_every_bit(data: st.DataObject, groups: int, n: int) -> None:
    """Bug report A4: a reordered cache was quantised again, and came back 3e-2 away."""
    model = Model(groups, n, None)
    model.prefill([3] * groups)
    model.extend(data.draw(st.integers(1, 5)))
    before = model.cache._tail.clone()
    order = torch.stack([torch.tensor(data.draw(st.permutations(range(n)))) for _ in range(groups)])
    model.cache.fork(order)
    for group in range(groups):
        moved = [int(p) for p in order[group]]
        used = model.cache.pending[group]
        assert torch.equal(model.cache._tail[:, :, group, :, :, :used], before[:, :, group, moved, :, :used])
    model.cache.fork(order.argsort(1))
    assert torch.equal(model.cache._tail, before)


def test_an_identity_fork_copies_nothing() -> None:
    """Bug report A5: state identical for all beams was gathered at every step."""
    model = Model(2, 3, None)
    model.prefill([4, 2])
    model.extend(3)
    cache = model.cache
    marks = [(t.data_ptr(), t._version) for t in (cache._trunk, cache._tail)]
    cache.fork(torch.arange(3).repeat(2, 1))
    assert marks == [(t.data_ptr(), t._version) for t in (cache._trunk, cache._tail)]
    cache.fork(torch.tensor([[0, 1, 2], [0, 1, 1]]))
    assert cache._tail._version > marks[1][1], "a fork that is none would be seen"


def test_a_fork_leaves_the_trunk_alone() -> None:
    model = Model(1, 3, None)
    model.prefill([40])
    model.extend(2)
    mark = (model.cache._trunk.data_ptr(), model.cache._trunk._version)
    model.cache.fork(torch.tensor([[2, 2, 2]]))
    assert mark == (model.cache._trunk.data_ptr(), model.cache._trunk._version)


def test_commit_of_more_than_there_is_names_the_group() -> None:
    model = Model(2, 2, None)
    model.extend(3)
    with pytest.raises(ValueError, match="group 1 has 3 uncommitted positions; 4 were asked for"):
        model.cache.commit(torch.tensor([0, 4]))
    with pytest.raises(ValueError, match="group 0"):
        model.cache.commit(torch.tensor([-1, 0]))


def test_a_window_bounds_the_trunk() -> None:
    model = Model(1, 2, window=8)
    sizes = set()
    for step in range(40):
        model.extend(4, salt=step)
        model.fork([[1, 1]])
        model.commit([4])
        sizes.add(model.cache._trunk.shape[4])
        assert model.cache.committed == [4 * (step + 1)]
        assert model.cache._trunk_length[0] <= 7
    assert len(sizes) == 1, f"the trunk grew: {sizes}"
    model.check()


def test_a_chunk_longer_than_the_window_sees_all_of_it() -> None:
    """Bug report C4: a ring of exactly `context` entries dropped history that the same chunk's first queries needed."""
    model = Model(1, 2, window=6)
    for step, frames in enumerate((20, 1, 5, 20)):
        model.extend(frames, salt=step)
        model.fork([[0, 0]])
        model.commit([frames])
    model.check()


def test_buffers_grow_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 9: moving what is committed to a longer buffer happens at doublings, not at every chunk."""
    copied: list[int] = []
    grown: Callable[..., Tensor] = state._grown

    def counted(buffer: Tensor, axis: int, needed: int) -> Tensor:
        bigger = grown(buffer, axis, needed)
        if bigger is not buffer:
            copied.append(buffer.shape[axis])
        return bigger

    monkeypatch.setattr(state, "_grown", counted)
    model = Model(1, 2, None)
    for step in range(100):
        model.extend(5, salt=step)
        model.fork([[1, 1]])
        model.commit([5])
    assert sum(copied) <= 2 * 500


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_keep_their_type(dtype: torch.dtype) -> None:
    cache = BranchCache(layers=1, groups=1, n=2, kv_heads=1, head_dim=4, dtype=dtype)
    q = torch.randn(1, 2, 1, 3, 4, dtype=dtype)
    out = cache.extend(3).attend(0, q, q, q)
    assert out.dtype == dtype
    assert out.shape == q.shape


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


@given(data=st.data(), window=st.sampled_from([1, 2, 5]), groups=st.integers(1, 3), n=st.integers(1, 3))
@settings(max_examples=40)
def test_what_waits_for_a_commit_may_have_left_the_window(
    data: st.DataObject, window: int, groups: int, n: int
) -> None:
    """Positions are counted whether they are still there or not: in `pending`, in `commit`, and where a row is."""
    model = Model(groups, n, window)
    model.prefill(data.draw(st.lists(st.integers(1, 9), min_size=groups, max_size=groups)))
    waiting = [0] * groups
    for step in range(data.draw(st.integers(2, 8))):
        active = data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups))
        frames = data.draw(st.integers(1, 8))
        model.extend(frames, active, step)
        waiting = [old + frames * grows for old, grows in zip(waiting, active, strict=True)]
        assert model.cache.pending == waiting
        model.fork([data.draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)) for _ in range(groups)])
        if data.draw(st.integers(0, 2)) == 0:
            before = model.cache.committed
            counts = [data.draw(st.integers(0, pending)) for pending in waiting]
            model.fork([[0] * n] * groups)
            model.commit(counts)
            waiting = [old - count for old, count in zip(waiting, counts, strict=True)]
            assert model.cache.committed == [old + count for old, count in zip(before, counts, strict=True)]
    model.check()


def test_a_window_bounds_what_waits_for_a_commit() -> None:
    """A whole utterance in pieces: what is held does not grow with it, and it is committed to the last position."""
    model = Model(1, 2, window=8)
    for step in range(40):
        model.extend(4, salt=step)
    assert model.cache.pending == [160]
    assert model.cache._tail.shape[5] <= 32, "twice the window and a piece, or the next doubling"
    with pytest.raises(ValueError, match="group 0 has 160 uncommitted positions; 161 were asked for"):
        model.cache.commit(torch.tensor([161]))
    model.fork([[1, 1]])
    model.commit([150])
    assert (model.cache.committed, model.cache.pending) == ([150], [10])
    model.extend(3, salt=41)
    model.fork([[0, 0]])
    model.commit([13])
    assert (model.cache.committed, model.cache.pending) == ([163], [0])
    assert model.cache._trunk.shape[4] <= 32
    model.extend(3, salt=42)
    model.check()
