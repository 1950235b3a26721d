"""The forkable cache against attention written out plainly: every row sees its own history, and no more."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from search import state
from search.state import BranchCache
from tests.plain_attention import Model, walk


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
