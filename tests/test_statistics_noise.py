"""What chooses or differs by chance alone has no effect, whatever the noise looks like; what is real is found."""

from collections.abc import Callable

import numpy as np
import pytest

from experiments.statistics import Draw, report
from experiments.statistics.effects import Effect, effect, judged
from experiments.statistics.metrics import Metric
from tests.made_study import candidates, configuration, made

PROMPTS, SEEDS, OTHERS, STUDIES = 60, 2, 12, 120
WER = Metric("judge.wer", "lower", "judge", tested=True)
QUICK = Draw(resamples=20)
Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def heavy(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Without a variance."""
    return random.standard_t(2.0, shape)


def errors(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Few errors over few words: mostly 0, seldom more than all words."""
    often = random.gamma(0.5, 0.8, (*shape[:1], 1, 1))
    invented = (random.random(shape) < 0.01) * random.integers(5, 30, shape)
    return (random.poisson(np.broadcast_to(often, shape)) + invented) / random.integers(5, 14, (*shape[:1], 1, 1))


def mixed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Skewed and of other spread for every prompt."""
    return random.lognormal(0.0, 1.0, shape) * random.lognormal(0.0, 1.0, (*shape[:1], 1, 1))


def compared(takes: np.ndarray) -> list[Effect]:
    """Effects of takes [prompts, configurations, seeds] against the first configuration."""
    means = takes.mean(2)
    samples = [means[:, place] - means[:, 0] for place in range(1, means.shape[1])]
    named = [(f"c{place}", "c0") for place in range(1, means.shape[1])]
    pairs = (takes.shape[0] * takes.shape[2], 0)
    effects = [
        effect("baseline", WER, names, sample, pairs, QUICK) for names, sample in zip(named, samples, strict=True)
    ]
    return judged(effects, 0.05)


@pytest.mark.parametrize("noise", [heavy, errors, mixed])
def test_of_studies_without_effects_no_more_than_the_nominal_share_shows_any(noise: Noise) -> None:
    """5 % of 120 studies are 6; more than 14 come up once in a thousand times. Uncorrected it is about 40."""
    random = np.random.default_rng(11)
    shape = (PROMPTS, OTHERS + 1, SEEDS)
    studies = [compared(noise(random, shape)) for _ in range(STUDIES)]
    assert sum(any(one.shown for one in study) for study in studies) <= 14
    uncorrected = sum(any((one.p_wilcoxon or 0.0) < 0.05 for one in study) for study in studies)
    assert uncorrected > 24, "there was nothing to correct"


@pytest.mark.parametrize("noise", [errors, mixed])
def test_real_effects_are_found_among_many_that_are_none(noise: Noise) -> None:
    random = np.random.default_rng(12)
    found = []
    for _ in range(20):
        takes = noise(random, (PROMPTS, OTHERS + 1, SEEDS))
        takes[:, 1] *= 0.2
        takes[:, 2] += 0.3 * takes[:, 0].std()
        verdicts = [one.verdict for one in compared(takes)]
        found.append(verdicts[:2] == ["better", "worse"])
    assert sum(found) >= 16


def chosen_by_noise(n: int, random: np.random.Generator) -> dict[str, float]:
    """The best of n takes by a reward that means nothing; the judge hears whatever was chosen."""
    rewards, wers = random.normal(size=n), random.poisson(0.8, n) / 8
    best = int(rewards.argmax())
    return {"reward": float(rewards[best]), "judge.wer": float(wers[best]), "judge.dnsmos": float(random.normal(3, 1))}


def test_a_report_on_pure_noise_rewards_says_no_effect_although_the_reward_rises() -> None:
    said = []
    for study in range(8):
        random = np.random.default_rng(100 + study)
        arms = candidates(1, 2, 4, 8, 16)
        run = made(arms, 40, 2, lambda one, _p, _s, random=random: chosen_by_noise(one["n"], random), judges=("ear",))
        found = report(run, draw=QUICK)
        assert found.tests == 2 * (4 + 1)
        said.append(any(one.shown for one in found.effects))
        best = max(found.optimism, key=lambda one: one.gap.mean if one.judge == "judge.wer" and one.gap else 0.0)
        assert best.configuration in ("n8", "n16")
        assert best.gap is not None
        assert best.gap.bootstrap is not None
        assert best.gap.bootstrap.low > 0.5, "the reward's own opinion is named"
        if not said[-1]:
            assert "judge.wer against n1: no effect shown in any of 4 comparisons" in found.headlines
            assert found.edges == []
    assert sum(said) <= 2


def test_a_reward_that_hears_something_beats_the_random_control_and_noise_does_not() -> None:
    random = np.random.default_rng(3)
    arms = [
        configuration("n1"),
        configuration("good-n8", n=8, scorer="good"),
        configuration("noise-n8", n=8, scorer="noise"),
        configuration("random-n8", n=8, scorer="random"),
    ]

    def values(one: dict[str, object], _prompt: int, _seed: int) -> dict[str, float]:
        n = int(str(one["n"]))
        wers = random.poisson(1.0, n) / 8
        return {"reward": 0.0, "judge.wer": float(wers.min() if one["scorer"] == "good" else wers[0])}

    found = report(made(arms, 60, 2, values, judges=("ear",)))
    against_chance = {one.configuration: one for one in found.effects if one.kind == "control"}
    assert {name: one.verdict for name, one in against_chance.items() if one.metric == "judge.wer"} == {
        "good-n8": "better",
        "noise-n8": "no effect shown",
    }
    assert any(line.startswith("judge.wer against choosing at random: better in 1 of 2") for line in found.headlines)
    controls = {one.name: one.control for one in found.configurations}
    assert controls == {"n1": "", "good-n8": "random-n8", "noise-n8": "random-n8", "random-n8": ""}
