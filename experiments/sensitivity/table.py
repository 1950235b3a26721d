"""From what heads found to a table: a row for each damage and term. Pure arithmetic; knows no audio and no files.

A term's unit is its standard deviation over the undamaged takes. A copy that cannot be judged counts as below the take
that can: a reward puts such candidates last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from experiments.sensitivity.damages import Damage
from experiments.sensitivity.study import UNDAMAGED, Found

HEARD = 0.9
"""Share of the takes, at least, in which a term that hears a damage scores the copy below the take."""

LIKED = 0.6
"""Share of the takes, at least, in which a term that likes a damage scores the copy above the take."""


@dataclass(frozen=True)
class Effect:
    """What a damage does to a term.

    Attributes:
        stage: "whole", or "beginning": unfinished.
        takes: those whose undamaged copy is judged.
        unjudged: of these, those whose damaged copy is not.
        below, above: shares of the takes; what remains are ties.
        drop: mean fall of the term in its good direction, in its own unit; NaN where no copy is judged.
        unit: standard deviation over undamaged takes.
        meant: the term should hear the damage.
    """

    damage: str
    stage: str
    term: str
    takes: int
    unjudged: int
    below: float
    above: float
    drop: float
    unit: float
    meant: bool

    @property
    def drop_in_units(self) -> float:
        """NaN where undamaged takes do not differ and the copies do."""
        if self.unit > 0:
            return self.drop / self.unit
        return math.nan if self.drop else 0.0

    @property
    def verdict(self) -> str:
        """Whether the term hears the damage."""
        if self.below >= HEARD:
            return "yes"
        return "in part" if self.below >= 0.5 else "no"


def effects(
    damages: Sequence[Damage], found: Sequence[Found], signs: Mapping[str, float], stage: str = "whole"
) -> list[Effect]:
    """Effects of every damage on every term.

    Args:
        found: of every take; all takes have the same copies and terms.
        signs: of the terms (`head.term`), 1 where higher is better and -1 where lower is.
    """
    result = []
    for damage in damages:
        meant = damage.meant if stage == "whole" else damage.early
        if meant is None or damage.name not in found[0]:
            continue
        for term, sign in signs.items():
            pairs = [(sign * one[UNDAMAGED][term], sign * one[damage.name][term]) for one in found]
            pairs = [(before, after) for before, after in pairs if math.isfinite(before)]
            if pairs:
                result.append(_effect(damage.name, stage, term, pairs, term in meant))
    return result


def _effect(damage: str, stage: str, term: str, pairs: Sequence[tuple[float, float]], meant: bool) -> Effect:
    judged = [(before, after) for before, after in pairs if math.isfinite(after)]
    unjudged, takes = len(pairs) - len(judged), len(pairs)
    return Effect(
        damage=damage,
        stage=stage,
        term=term,
        takes=takes,
        unjudged=unjudged,
        below=(unjudged + sum(after < before for before, after in judged)) / takes,
        above=sum(after > before for before, after in judged) / takes,
        drop=fmean(before - after for before, after in judged) if judged else math.nan,
        unit=stdev(before for before, _ in pairs) if takes > 1 else 0.0,
        meant=meant,
    )


def answers(damages: Sequence[Damage], found: Sequence[Effect]) -> str:
    """The right answers as a Markdown table: for each damage, the terms that should hear it, and whether they do."""
    lines = [
        "| damage | stage | meant to hear it | below the take | drop in SD | hears it |",
        "|---|---|---|---|---|---|",
    ]
    what = {damage.name: damage.what for damage in damages}
    lines += [
        f"| {what[one.damage]} | {one.stage} | {one.term} | {_share(one)} | {_drop(one)} | {one.verdict} |"
        for one in found
        if one.meant
    ]
    return "\n".join(lines)


def grid(damages: Sequence[Damage], found: Sequence[Effect], terms: Sequence[str], stage: str = "whole") -> str:
    """Damage by term as a Markdown table: drop in standard deviations, and share of takes with the copy below."""
    cells = {(one.damage, one.term): one for one in found if one.stage == stage}
    rows = [damage for damage in damages if any((damage.name, term) in cells for term in terms)]
    lines = ["| damage | " + " | ".join(terms) + " |", "|---" * (len(terms) + 1) + "|"]
    for damage in rows:
        shown = [cells.get((damage.name, term)) for term in terms]
        lines.append(f"| {damage.what} | " + " | ".join(_cell(one) for one in shown) + " |")
    return "\n".join(lines)


def liked(damages: Sequence[Damage], found: Sequence[Effect], terms: Sequence[str]) -> str:
    """Markdown table of the damages that a term scores above the take in most takes; empty where there are none."""
    what = {damage.name: damage.what for damage in damages}
    lines = [
        f"| {what[one.damage]} | {one.stage} | {one.term} | {one.above:.0%} of {one.takes} | {-one.drop_in_units:.1f} |"
        for one in found
        if one.term in terms and one.above >= LIKED
    ]
    heading = ["| damage | stage | term | above the take | rise in SD |", "|---|---|---|---|---|"]
    return "\n".join([*heading, *lines]) if lines else ""


def _cell(one: Effect | None) -> str:
    return "" if one is None else f"{_drop(one)} ({one.below:.0%})"


def _share(one: Effect) -> str:
    note = f", {one.unjudged} not judged" if one.unjudged else ""
    return f"{one.below:.0%} of {one.takes}{note}"


def _drop(one: Effect) -> str:
    return f"{round(one.drop_in_units, 1) + 0.0:.1f}" if math.isfinite(one.drop_in_units) else "-"
