"""Means of paired samples: intervals, two tests, and the correction for many of them.

Every sample is float64 [prompts], one finite number a prompt, independent of each other. Knows nothing of what the
numbers are.

    t interval       mean -+ t(1 - alpha/2, n - 1) * s / sqrt(n)                              Student 1908
    BCa interval     bootstrap over prompts, bias corrected and accelerated                   Efron 1987
    signed rank      ranks of |d|, ties share their mean rank, zeros are dropped, exact       Wilcoxon 1945
    Holm             k-th smallest p of m times m - k + 1, never falling                      Holm 1979
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Sample = NDArray[np.float64]
LEVEL = 0.95
_EXACT_UP_TO = 200
"""Differences; of more, the signed rank is taken for normal."""


@dataclass(frozen=True)
class Interval:
    """A range that holds the true value in `LEVEL` of all studies, each interval for itself."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts. Intervals are None where a single prompt leaves nothing to estimate a spread from."""

    mean: float
    t: Interval | None
    bootstrap: Interval | None


def estimate(sample: Sample, seed: int, resamples: int) -> Estimate:
    """The mean of a sample that is not empty, with both intervals."""
    return Estimate(
        float(sample.mean()), t_interval(sample), bootstrap_interval(sample, np.ones_like(sample), seed, resamples)
    )


def t_interval(sample: Sample) -> Interval | None:
    """For the mean; None for less than two prompts."""
    if len(sample) < 2:
        return None
    half = float(special.stdtrit(len(sample) - 1, 0.5 + LEVEL / 2)) * _standard_error(sample)
    return Interval(float(sample.mean()) - half, float(sample.mean()) + half)


def bootstrap_interval(numerator: Sample, denominator: Sample, seed: int, resamples: int) -> Interval | None:
    """BCa for sum(numerator) / sum(denominator), prompts resampled whole; None for less than two prompts.

    The denominator, 1 each for a mean, is above 0. Prompts are drawn alike for all samples of one size, so that
    intervals of one report do not differ by the draw.
    """
    count = len(numerator)
    if count < 2:
        return None
    value = float(numerator.sum() / denominator.sum())
    drawn = _draws(count, seed, resamples)
    values = np.sort((drawn @ numerator) / (drawn @ denominator))
    without = (numerator.sum() - numerator) / (denominator.sum() - denominator)
    low, high = np.quantile(values, _bca_levels(value, values, without))
    return Interval(float(low), float(high))


def t_test(sample: Sample) -> float:
    """Two-sided p of "the mean is 0"; 1 where all is 0. Where all is one other number t is infinite and p is 0."""
    error = _standard_error(sample)
    if error == 0.0:
        return 0.0 if sample.any() else 1.0
    return float(2.0 * special.stdtr(len(sample) - 1, -abs(float(sample.mean())) / error))


def signed_rank_test(sample: Sample) -> float:
    """Two-sided p of "as likely d as -d", exact with ties too; 1 where all is 0."""
    ranks = _doubled_ranks(sample)
    if len(ranks) == 0:
        return 1.0
    positive, total = int(ranks[ranks > 0].sum()), int(np.abs(ranks).sum())
    if len(ranks) > _EXACT_UP_TO:
        distance = abs(positive - total / 2) / np.sqrt(float((ranks.astype(np.float64) ** 2).sum()) / 4)
        return float(2.0 * special.ndtr(-distance))
    chance = _sums_of_any(np.abs(ranks))
    return min(1.0, 2.0 * float(chance[: min(positive, total - positive) + 1].sum()))


def rank_lean(sample: Sample) -> int:
    """The sign that has more of the ranks: 1, -1, or 0 for neither."""
    return int(np.sign(_doubled_ranks(sample).sum()))


def fewest_prompts(alpha: float) -> int:
    """With less, no signed rank test falls below `alpha`: of n prompts that all agree, p is 2 / 2**n."""
    return int(np.floor(1.0 - np.log2(alpha))) + 1


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p, in the order given: below alpha for any true null only in a share alpha of all studies."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, floor = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        floor = max(floor, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = floor
    return adjusted


def _standard_error(sample: Sample) -> float:
    """0 for a constant sample, which a rounded mean would otherwise hide."""
    return 0.0 if np.ptp(sample) == 0.0 else float(sample.std(ddof=1)) / float(np.sqrt(len(sample)))


@lru_cache(maxsize=16)
def _draws(count: int, seed: int, resamples: int) -> Sample:
    """How often each of `count` prompts is in each resample, float64 [resamples, count]."""
    chosen = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=resamples)
    return chosen.astype(np.float64)


def _bca_levels(value: float, values: Sample, without: Sample) -> Sample:
    """Quantiles of the resampled values that bound the interval (Efron and Tibshirani 1993, chapter 14).

    Args:
        value: of the sample itself.
        values: of the resamples.
        without: of the sample without each prompt in turn, whose skewness is the acceleration.
    """
    tails = np.array([0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    slack = 1e-9 * float(np.abs(values).max())
    below = float((values < value - slack).mean() + (values <= value + slack).mean()) / 2
    if not 0.0 < below < 1.0:
        return tails
    away = without.mean() - without
    scale = float((away**2).sum()) ** 1.5
    acceleration = float((away**3).sum()) / (6.0 * scale) if scale > 0.0 else 0.0
    bias = special.ndtri(below)
    shifted = bias + special.ndtri(tails)
    levels: Sample = special.ndtr(bias + shifted / (1.0 - acceleration * shifted))
    return levels


def _doubled_ranks(sample: Sample) -> NDArray[np.int64]:
    """Twice the rank of every difference that is not 0, with its sign; doubled, mean ranks of ties are whole.

    Floating-point dust would break ties, so magnitudes are ranked at 12 significant digits of the largest.
    """
    scale = float(np.abs(sample).max(initial=0.0))
    rounded = np.round(sample / scale, 12) if scale > 0.0 else sample
    moved = rounded[rounded != 0.0]
    ranks: NDArray[np.int64] = np.rint(2.0 * stats.rankdata(np.abs(moved)) * np.sign(moved)).astype(np.int64)
    return ranks


def _sums_of_any(ranks: NDArray[np.int64]) -> Sample:
    """Chance of each sum 0..total when every rank counts or does not, a coin each."""
    chance = np.ones(1)
    for rank in np.sort(ranks).tolist():
        more = np.zeros(len(chance) + rank)
        more[: len(chance)] = chance
        more[rank:] += chance
        chance = more / 2.0
    return chance
