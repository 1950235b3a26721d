"""The report in sentences: what was shown, what was not, and what stands in the way of believing it.

Knows no numbers but those of effects.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.statistics.comparisons import chooses_at_random, controls
from experiments.statistics.effects import Effect, many
from experiments.statistics.metrics import Metric
from experiments.statistics.pairing import Grid
from experiments.statistics.selection import Optimism

_HELD_AGAINST = {
    "baseline": "against {baseline}",
    "doubling": "per doubling of N",
    "control": "against choosing at random",
}


def headlines(
    metrics: Sequence[Metric], effects: Sequence[Effect], optimisms: Sequence[Optimism], baseline: str
) -> list[str]:
    """What to read first: for each tested metric the baseline, N and the control; then what selection makes of it."""
    found = []
    for metric in metrics:
        mine = [one for one in effects if one.metric == metric.name]
        if metric.tested:
            for kind, what in _HELD_AGAINST.items():
                start = f"{metric.name} {what.format(baseline=baseline)}: "
                found += _compared(start, [one for one in mine if one.kind == kind])
        elif metric.source == "reward":
            found += [f"{one.sentence}; it was selected for, so this is no evidence" for one in _largest(mine)]
    for judge in dict.fromkeys(one.judge for one in optimisms):
        gains = [(one.reward_gain.mean, one) for one in optimisms if one.judge == judge and one.reward_gain]
        if gains:
            found.append(max(gains, key=lambda pair: pair[0])[1].sentence)
    return found


def warnings(grid: Grid, metrics: Sequence[Metric], own_judges: Sequence[str]) -> list[str]:
    """What a reader has to know before believing any of it."""
    found = []
    rows = list(grid.units.values())
    for status, what in (("failed", "failed"), ("cancelled", "were cancelled"), ("hit_frame_limit", "hit the limit")):
        count = sum(row.get("status") == status for row in rows)
        used = "; their takes count" if status == "hit_frame_limit" else "; pairs with them are left out"
        found += [f"{count} of {many(len(rows), 'unit')} {what}{used}"] if count else []
    if not rows:
        found.append("there are no units")
    elif len(grid.configurations) == 1:
        found.append(f"{grid.configurations[0]} is the only configuration: nothing to compare")
    else:
        found += _without_control(grid)
    if rows and not any(metric.source == "judge" for metric in metrics):
        found.append("nothing was judged: a gain of the selecting reward alone is no evidence of better speech")
    found += [f"judge {name} also selected; its figures are no independent evidence" for name in own_judges]
    if rows and len(grid.seeds) == 1:
        found.append("one seed: how much takes of one prompt differ is not known")
    batches = sorted({int(row["batch"]) for row in rows if row.get("batch")})
    if batches and batches[-1] > 1:
        found.append(f"timed in batches of up to {batches[-1]}: seconds are not those of a prompt spoken alone")
    return found


def _without_control(grid: Grid) -> list[str]:
    """That no gain is held against chance; nothing where one is, or where all that is chosen is chosen by chance."""
    chance = [name for name in grid.configurations if chooses_at_random(grid, name)]
    choosing = [name for name in grid.configurations if grid.settings[name]["n"] != 1]
    if controls(grid) or (chance and chance == choosing):
        return []
    if chance:
        return [
            "nothing that chooses at random differs from another in its scorer alone: gains are not held against it"
        ]
    return ['no configuration chooses at random (scorer = "random"): gains are against the baseline alone']


def _compared(start: str, effects: Sequence[Effect]) -> list[str]:
    """A sentence for all effects of one kind: how many are shown, and the largest; one for each direction."""
    if not effects:
        return []
    judged = [one for one in effects if one.p_wilcoxon is not None]
    if not judged:
        return [f"{start}cannot be judged by {many(max(one.prompts for one in effects), 'prompt')}"]
    if not any(one.shown for one in judged):
        return [f"{start}no effect shown in any of {many(len(judged), 'comparison')}"]
    sentences = []
    for verdict in ("better", "worse"):
        mine = [one for one in judged if one.verdict == verdict]
        sentences += [
            f"{start}{verdict} in {len(mine)} of {many(len(judged), 'comparison')}, most: {one.sentence}"
            for one in _largest(mine)
        ]
    return sentences


def _largest(effects: Sequence[Effect]) -> list[Effect]:
    """The effect of the largest size, if there is any."""
    sizes = [(abs(one.size.mean), one) for one in effects if one.size is not None]
    return [max(sizes, key=lambda pair: pair[0])[1]] if sizes else []
