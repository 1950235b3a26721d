"""Intervals, tests and Holm's correction against scipy, enumeration and figures worked out by hand."""

import itertools

import numpy as np
import pytest
from scipy import stats

from experiments.statistics.estimates import (
    Interval,
    bootstrap_interval,
    estimate,
    fewest_prompts,
    holm,
    signed_rank_test,
    t_interval,
    t_test,
)

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("count", [2, 7, 60])
def test_t_is_that_of_scipy(count: int) -> None:
    sample = RANDOM.normal(0.3, 1.0, count)
    known = stats.ttest_1samp(sample, 0.0)
    assert t_test(sample) == pytest.approx(known.pvalue)
    low, high = known.confidence_interval(0.95)
    assert t_interval(sample) == Interval(pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("count", [6, 25, 50])
def test_the_signed_rank_is_that_of_scipy_where_nothing_is_tied(count: int) -> None:
    sample = RANDOM.normal(0.2, 1.0, count)
    assert signed_rank_test(sample) == pytest.approx(stats.wilcoxon(sample, method="exact").pvalue)


def test_the_signed_rank_is_exact_with_ties_and_without_zeros() -> None:
    for sample in (np.array([1, 1, 2, -1, 3, 3, -3, 0, 2.0]), np.array([0.1, 0.1, 0.1, -0.2, 0.3, 0.3, 0.0])):
        moved = sample[sample != 0]
        ranks = stats.rankdata(np.abs(np.round(moved, 9)))
        sums = [np.array(signs) @ ranks for signs in itertools.product((0, 1), repeat=len(moved))]
        lower = min((ranks * (moved > 0)).sum(), (ranks * (moved < 0)).sum())
        assert signed_rank_test(sample) == pytest.approx(min(1.0, 2 * np.mean(np.array(sums) <= lower + 1e-9)))


def test_rounding_breaks_no_ties() -> None:
    tied = np.array([0.3, -0.3, 0.3, 0.3, 0.3, 0.3, -0.3])
    dusty = tied + np.array([1, -1, 0, 1, 0, -1, 1]) * 1e-16
    assert signed_rank_test(dusty) == signed_rank_test(tied)


def test_many_differences_use_a_normal_that_is_close_to_the_exact() -> None:
    for shift in (0.0, 0.1, 0.2):
        sample = RANDOM.normal(shift, 1.0, 250)
        assert signed_rank_test(sample) == pytest.approx(stats.wilcoxon(sample, method="exact").pvalue, abs=0.002)


def test_nothing_moves_nothing_is_found() -> None:
    still = np.zeros(30)
    assert (t_test(still), signed_rank_test(still)) == (1.0, 1.0)
    assert estimate(still, 0, 99).bootstrap == Interval(0.0, 0.0)


def test_a_constant_difference_is_as_sure_as_its_prompts_are_many() -> None:
    assert t_test(np.full(3, 0.1)) == 0.0
    assert signed_rank_test(np.full(3, 0.1)) == 0.25
    assert signed_rank_test(np.full(10, 0.1)) == 2 / 2**10


def test_with_fewer_prompts_no_rank_test_can_succeed() -> None:
    for alpha in (0.05, 0.01, 0.5):
        count = fewest_prompts(alpha)
        assert signed_rank_test(np.ones(count)) < alpha <= signed_rank_test(np.ones(count - 1))


@pytest.mark.parametrize("skewed", [True, False])
def test_bootstrap_of_means_and_of_rates_is_that_of_scipy(skewed: bool) -> None:
    errors = RANDOM.exponential(1.0, 40) if skewed else RANDOM.normal(3.0, 1.0, 40)
    words = RANDOM.integers(3, 20, 40).astype(np.float64)
    for weights in (np.ones(40), words):
        known = stats.bootstrap(
            (errors, weights),
            lambda one, other, axis=-1: one.sum(axis) / other.sum(axis),
            paired=True,
            n_resamples=9999,
            random_state=np.random.default_rng(3),
        )
        found = bootstrap_interval(errors, weights, 0, 9999)
        assert found is not None
        width = known.confidence_interval.high - known.confidence_interval.low
        assert found.low == pytest.approx(known.confidence_interval.low, abs=0.05 * width)
        assert found.high == pytest.approx(known.confidence_interval.high, abs=0.05 * width)


def test_the_same_seed_draws_the_same() -> None:
    sample = RANDOM.normal(size=20)
    assert estimate(sample, 1, 500) == estimate(sample, 1, 500)
    assert estimate(sample, 1, 500).bootstrap != estimate(sample, 2, 500).bootstrap


def test_one_prompt_has_a_mean_and_no_interval() -> None:
    found = estimate(np.array([0.5]), 0, 100)
    assert (found.mean, found.t, found.bootstrap) == (0.5, None, None)


def test_holm_worked_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
