"""Single effects: what decides the verdict, and how large the optimism of a selection is."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from experiments.statistics import Draw, report
from experiments.statistics.effects import Effect, effect, judged, number
from experiments.statistics.metrics import Metric
from tests.made_study import candidates, configuration, made

QUICK = Draw(resamples=200)
WER = Metric("judge.wer", "lower", "judge", tested=True)


def effect_of(differences: list[float]) -> Effect:
    sample = np.array(differences)
    (one,) = judged([effect("baseline", WER, ("n8", "n1"), sample, (len(sample), 0), QUICK)], 0.05)
    return one


def test_ranks_and_mean_that_disagree_show_nothing() -> None:
    """A little better for most prompts, ruined for one: neither better nor worse is the whole truth."""
    better, ruined = [-0.01 - 0.001 * place for place in range(29)], [9.0]
    one = effect_of(better + ruined)
    assert one.p_holm is not None
    assert one.p_holm < 0.001
    assert one.verdict == "no effect shown"
    assert effect_of([*better, -9.0]).verdict == "better"


def test_a_mean_that_one_prompt_makes_uncertain_is_said_to_be() -> None:
    sure = effect_of([-0.01 - 0.001 * place for place in range(30)])
    assert "t test" not in sure.sentence
    unsure = effect_of([*(-0.01 - 0.001 * place for place in range(29)), -9.0])
    assert unsure.sentence.endswith("; the mean is less sure, t test alone: p = 0.289")


def test_a_cancelled_take_counts_for_nothing() -> None:
    def values(one: Mapping[str, Any], prompt: int, _: int) -> dict[str, Any]:
        cut = one["n"] == 2 and prompt == 3
        return {"judge.wer": 9.0 if cut else 0.5, "status": "cancelled" if cut else "complete"}

    found = report(made(candidates(1, 2), 8, 1, values), draw=QUICK)
    (one,) = [one for one in found.effects if one.metric == "judge.wer" and one.kind == "baseline"]
    assert (one.ties, one.losses, one.dropped) == (7, 0, 1)
    assert [(one.units, one.failed) for one in found.configurations] == [(8, 0), (8, 1)]


def test_rounding_is_a_tie() -> None:
    def values(one: Mapping[str, Any], prompt: int, seed: int) -> dict[str, float]:
        thirds = [0.1, 0.2, 0.3] if one["n"] == 1 else [0.3, 0.2, 0.1]
        return {"judge.wer": thirds[seed] + prompt / 7}

    found = report(made(candidates(1, 2), 30, 3, values), draw=QUICK)
    assert [one.ties for one in found.effects if one.metric == "judge.wer"] == [30, 30]


def test_optimism_is_in_standard_deviations_between_takes() -> None:
    """Takes differ by sqrt(2) in the reward and by 0.1 * sqrt(2) in the judge; N = 4 adds 2 and takes off 0.1."""

    def values(one: Mapping[str, Any], prompt: int, seed: int) -> dict[str, float]:
        more = int(one["n"] == 4)
        return {"reward": prompt + 2 * seed + 2 * more, "judge.wer": 5 * prompt + 0.2 * seed - 0.1 * more}

    (one,) = report(made(candidates(1, 4), 9, 2, values), draw=QUICK).optimism
    assert one.unit == "takes of a prompt"
    assert one.reward_gain is not None
    assert one.judge_gain is not None
    assert one.gap is not None
    gains = (one.reward_gain.mean, one.judge_gain.mean, one.gap.mean)
    assert gains == pytest.approx((2**0.5, 0.5**0.5, 0.5**0.5))
    (single,) = report(made(candidates(1, 4), 9, 1, values), draw=QUICK).optimism
    assert single.unit == "prompts"
    assert single.reward_gain is not None
    assert single.reward_gain.mean == pytest.approx(2 / np.arange(9).std(ddof=1))


def test_the_reward_has_a_slope_but_no_verdict() -> None:
    run = made(candidates(1, 2, 4), 20, 1, lambda one, prompt, _: {"reward": 3.0 * one["n"] + prompt})
    (slope,) = [one for one in report(run, draw=QUICK).effects if one.kind == "doubling"]
    assert slope.size is not None
    assert (slope.size.mean, slope.verdict, slope.p_wilcoxon) == (pytest.approx(4.5), "described", None)


def test_what_chooses_nothing_begins_every_series_of_n() -> None:
    arms = [configuration("n1"), *(configuration(f"n{n}-b{b}", n=n, beam_width=b) for n in (2, 4) for b in (1, 2))]
    found = report(made(arms, 8, 1, lambda one, *_: {"judge.wer": 1 / one["n"]}), draw=QUICK)
    series = [(one.configuration, one.against) for one in found.effects if one.kind == "doubling"]
    assert series == [("beam_width 1", "N from 1 to 4"), ("beam_width 2", "N from 1 to 4")]


def test_numbers_are_read_by_people() -> None:
    assert [number(value) for value in (0.0, -0.01234, 12345.6, 0.000012, 999.4)] == [
        *("0", "−0.0123", "12346", "1.2e−05", "999")
    ]
