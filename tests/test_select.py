"""Ranking and children: pure functions of rewards."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.select import rank, spread

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("rewards", "order"),
    [
        ([0.5, NAN, 0.9], [2, 0, 1]),
        ([NAN] * 4, [0, 1, 2, 3]),
        ([-INF, -5.0, INF, NAN], [1, 0, 2, 3]),
        ([1.0, 2.0, 2.0, 0.0], [1, 2, 0, 3]),
        ([-0.0, 0.0], [0, 1]),
    ],
)
def test_unusable_rewards_rank_last(rewards: list[float], order: list[int]) -> None:
    """Bug report A8: with a NaN among them, `sorted` left [.5, nan, .9] as it was, and the best row lost."""
    assert rank(rewards) == order


def test_equal_rewards_go_to_the_lower_word_error() -> None:
    assert rank([1.0, 1.0, 1.0, 2.0], [0.5, 0.0, NAN, 0.9]) == [3, 1, 0, 2]


def test_without_a_usable_reward_word_error_still_decides() -> None:
    assert rank([NAN, NAN, INF], [0.5, 0.1, 0.0]) == [2, 1, 0]


def test_the_best_reward_wins_and_not_the_shortest() -> None:
    """Bug report A10: candidates of 2.0, 2.5, 3.0 s scored .6, .9, .7, and the shortest was returned."""
    assert rank([0.6, 0.9, 0.7])[0] == 1


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=20))
def test_rank_is_a_permutation_with_rewards_falling(rewards: list[float]) -> None:
    order = rank(rewards)
    assert sorted(order) == list(range(len(rewards)))
    usable = [rewards[row] for row in order if math.isfinite(rewards[row])]
    assert usable == sorted(usable, reverse=True)
    assert all(math.isfinite(rewards[row]) for row in order[: len(usable)])


@given(n=st.integers(1, 64), data=st.data())
def test_children_are_spread_evenly_with_extras_to_the_better(n: int, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    parents = spread(kept, n)
    counts = [parents.count(row) for row in kept]
    assert len(parents) == n
    assert counts == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1
