"""Caches with a window: what no query sees is dropped, and everything is counted as if it were there."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plain_attention import Model


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
