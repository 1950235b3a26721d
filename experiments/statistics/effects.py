"""Effects that are tested: their size, how sure it is, and after all of them are known, the verdict.

An effect is shown when the p of the signed rank test stays below alpha after Holm's correction over every test of the
report, and the mean points the way in which most of the ranks do. Where configurations differ by chance alone this test
is exact whatever the values are like; the t test trusts in normal means, which a few takes gone wrong are enough to
spoil, and is told beside it where it does not agree. Knows not which effects there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from experiments.statistics.estimates import (
    Estimate,
    Interval,
    Sample,
    estimate,
    fewest_prompts,
    holm,
    rank_lean,
    signed_rank_test,
    t_test,
)
from experiments.statistics.metrics import Better, Metric

Kind = Literal["baseline", "doubling", "control"]
Verdict = Literal["better", "worse", "no effect shown", "cannot be judged", "described"]


@dataclass(frozen=True)
class Draw:
    """How bootstrap intervals are drawn, and below which adjusted p an effect is shown."""

    seed: int = 0
    resamples: int = 5000
    alpha: float = 0.05


@dataclass(frozen=True)
class Effect:
    """A difference of one metric, paired by prompt.

    Attributes:
        kind: "baseline", `configuration` less `against`; "control", the same, `against` being chosen at random;
            "doubling", what one doubling of N adds in the configurations that `configuration` describes.
        prompts, pairs, dropped: prompts that count; prompts with seeds that count; those that had no value.
        size: in the metric's unit; None without prompts.
        wins, ties, losses: prompts that are better, the same, worse; where no way is better, higher and lower.
        leans: the sign of most of the ranks, 0 where neither has most.
        p_t, p_wilcoxon: of the paired t test and of the signed rank test; None for what is not tested.
        p_holm: of the signed rank test, after the correction.
        verdict: "described" for what is not tested.
        sentence: all of it, for people.
    """

    kind: Kind
    metric: str
    better: Better | None
    configuration: str
    against: str
    prompts: int
    pairs: int
    dropped: int
    size: Estimate | None
    wins: int
    ties: int
    losses: int
    leans: int = 0
    p_t: float | None = None
    p_wilcoxon: float | None = None
    p_holm: float | None = None
    verdict: Verdict = "described"
    sentence: str = ""

    @property
    def shown(self) -> bool:
        return self.verdict in ("better", "worse")


def effect(
    kind: Kind,
    metric: Metric,
    names: tuple[str, str],
    differences: Sample,
    counts: tuple[int, int],
    draw: Draw,
) -> Effect:
    """The effect of a sample of differences, without its verdict.

    Args:
        names: the configuration, and what it is held against.
        differences: one a prompt, of which 0 is a tie.
        counts: pairs, and pairs that were dropped.
    """
    good = metric.sign * differences
    tested = metric.tested and len(differences) >= fewest_prompts(draw.alpha)
    return Effect(
        kind,
        metric.name,
        metric.better,
        *names,
        prompts=len(differences),
        pairs=counts[0],
        dropped=counts[1],
        size=estimate(differences, draw.seed, draw.resamples) if len(differences) else None,
        wins=int((good > 0).sum()),
        ties=int((good == 0).sum()),
        losses=int((good < 0).sum()),
        p_t=t_test(differences) if tested else None,
        p_wilcoxon=signed_rank_test(differences) if tested else None,
        leans=rank_lean(differences) if tested else 0,
        verdict="cannot be judged" if metric.tested else "described",
    )


def judged(effects: Sequence[Effect], alpha: float) -> list[Effect]:
    """The effects with adjusted p, verdict and sentence; those with a p are the family."""
    adjusted = iter(holm([one.p_wilcoxon for one in effects if one.p_wilcoxon is not None]))
    corrected = [one if one.p_wilcoxon is None else replace(one, p_holm=next(adjusted)) for one in effects]
    tests = sum(one.p_holm is not None for one in corrected)
    decided = [replace(one, verdict=_verdict(one, alpha)) for one in corrected]
    return [replace(one, sentence=_sentence(one, tests, alpha)) for one in decided]


def number(value: float) -> str:
    """Three significant digits or all before the point, with a minus sign that is one."""
    if abs(value) >= 1000:
        return f"{value:.0f}".replace("-", "−")
    return (f"{value:.3g}" if value == 0 or abs(value) >= 1e-4 else f"{value:.1e}").replace("-", "−")


def signed(value: float) -> str:
    """A difference: "+0.3"."""
    return f"+{number(value)}" if value > 0 else number(value)


def span(interval: Interval | None) -> str:
    """An interval in brackets; nothing for none."""
    return "" if interval is None else f" [{number(interval.low)}, {number(interval.high)}]"


def many(count: int, name: str) -> str:
    """ "1 prompt", "2 prompts"."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def too_few(prompts: int, alpha: float) -> str:
    """Why nothing can be shown: "1 prompt (6 are the fewest)"."""
    return f"{many(prompts, 'prompt')} ({fewest_prompts(alpha)} are the fewest)"


def _verdict(one: Effect, alpha: float) -> Verdict:
    if one.p_holm is None or one.size is None:
        return one.verdict
    if one.p_holm >= alpha or one.size.mean * one.leans <= 0.0:
        return "no effect shown"
    return "better" if (one.size.mean < 0.0) == (one.better == "lower") else "worse"


def _sentence(one: Effect, tests: int, alpha: float) -> str:
    what = {
        "baseline": f"{one.configuration} against {one.against}",
        "control": f"{one.configuration} against choosing at random ({one.against})",
        "doubling": f"every doubling of N ({one.configuration}; {one.against})",
    }[one.kind]
    start = f"{what}: {one.metric} "
    if one.size is None:
        return f"{start}cannot be judged: no prompt has a value in both"
    size = f"{signed(one.size.mean)}{span(one.size.bootstrap)}"
    if one.verdict == "cannot be judged":
        return f"{start}cannot be judged by {too_few(one.prompts, alpha)}: {size}"
    size = f"{size} over {many(one.prompts, 'prompt')}"
    if one.p_holm is None or one.p_t is None:
        return f"{start}{size}"
    good, bad = ("lower", "higher") if one.better == "lower" else ("higher", "lower")
    count = f"{good} for {one.wins}, {bad} for {one.losses}, same for {one.ties}"
    doubt = f"; the mean is less sure, t test alone: p = {number(one.p_t)}" if one.shown and one.p_t >= alpha else ""
    return f"{start}{one.verdict}: {size}; {count}; p = {number(one.p_holm)}, one of {many(tests, 'test')}{doubt}"
