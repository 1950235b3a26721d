"""A cache that grows by steps whose shapes are fixed holds and says what one does that grows freely."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from search.state import BranchCache
from search.static_cache import StaticCache

HEADS, KV_HEADS, WIDTH = 4, 2, 8


def fresh(kind: type[BranchCache], groups: int, n: int) -> Any:
    return kind(layers=1, groups=groups, n=n, kv_heads=KV_HEADS, head_dim=WIDTH)


def tokens(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(*shape[:-1], heads, shape[-1], WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS))  # type: ignore[return-value]


def prefilled(groups: int, n: int, lengths: list[int]) -> tuple[BranchCache, StaticCache]:
    caches = fresh(BranchCache, groups, n), fresh(StaticCache, groups, n)
    prompt = tokens(groups, max(lengths))
    for cache in caches:
        cache.prefill(torch.tensor(lengths)).attend(0, *prompt)
    return caches


@settings(max_examples=25)
@given(data=st.data(), groups=st.integers(1, 3), n=st.integers(1, 4))
def test_steps_are_extensions_by_one(data: st.DataObject, groups: int, n: int) -> None:
    """Through blocks, groups that stand still, forks and commits; bounds wider than need be change nothing."""
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=groups, max_size=groups))
    plain, static = prefilled(groups, n, lengths)
    for _ in range(data.draw(st.integers(1, 3))):
        static.reserve(256, 64)
        static.begin()
        for _ in range(data.draw(st.integers(1, 12))):
            active = torch.tensor(data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups)))
            new = tokens(groups, n, 1)
            theirs = plain.extend(1, active)
            mine = static.step(data.draw(st.sampled_from([128, 256])), data.draw(st.sampled_from([48, 64])))
            assert torch.equal(mine.positions, theirs.positions)
            torch.testing.assert_close(mine.attend(0, *new), theirs.attend(0, *new), rtol=1e-5, atol=1e-6)
            static.grow(active)
        static.end()
        assert (static.pending, static.committed) == (plain.pending, plain.committed)
        row = st.lists(st.integers(0, n - 1), min_size=n, max_size=n)
        parents = torch.tensor([data.draw(row) for _ in range(groups)])
        frames = torch.tensor([data.draw(st.integers(0, pending)) for pending in plain.pending])
        for cache in (plain, static):
            cache.fork(parents)
            cache.commit(frames)


def test_buffers_stay_while_there_is_room() -> None:
    _, cache = prefilled(2, 2, [3, 9])
    cache.reserve(64, 32)
    places = cache.places
    cache.begin()
    for _ in range(5):
        cache.step(64, 32).attend(0, *tokens(2, 2, 1))
        cache.grow(torch.tensor([True, True]))
    cache.end()
    cache.fork(torch.tensor([[1, 1], [0, 0]]))
    cache.commit(torch.tensor([5, 2]))
    cache.reserve(64, 32)
    assert cache.places == places
    cache.reserve(65, 32)
    assert cache.places != places


def test_what_was_in_the_buffers_is_gone_after_a_reset() -> None:
    """Not a number times a weight of zero is not zero."""
    _, cache = prefilled(1, 2, [20])
    broken = torch.full((1, KV_HEADS, 20, WIDTH), torch.nan)
    cache.reset()
    cache.prefill(torch.tensor([20])).attend(0, tokens(1, 20)[0], broken, broken)
    cache.reset()
    assert (cache.pending, cache.committed) == ([0], [0])
    cache.prefill(torch.tensor([2])).attend(0, *tokens(1, 2))
    cache.begin()
    assert bool(cache.step(16, 16).attend(0, *tokens(1, 2, 1)).isfinite().all())
