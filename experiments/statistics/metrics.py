"""What is measured of a unit: which columns are metrics, which way is good, and which of them are tested.

Every test makes all others less likely to show anything, so only a few metrics are tested unless more are asked for:
of every judge the word error rate, naturalness, likeness of speaker and fit to the style. The others are described:
means and differences with intervals, no verdict. So is the reward: the best of N by pure noise has more of it, too.
Knows no values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.statistics.results import JUDGE, Row
from experiments.sweep.tables import TIMES

Better = Literal["higher", "lower"]
Source = Literal["reward", "score", "judge", "timing", "audio"]
SCORE = "score."
_LOWER = ("prefix_wer", "wer", "cer", "extra_words", "missing_words", "words_behind", "clipped_samples", "seam_jump")
_HIGHER = (
    *("reward", "first_word", "confidence", "listener", "match", "pace", "end", "progress"),
    *("dnsmos", "dnsmos_sig", "dnsmos_bak", "dnsmos_p808", "speaker", "clap", "style"),
)
_DIRECTIONS: dict[str, Better] = {**dict.fromkeys(_LOWER, "lower"), **dict.fromkeys(_HIGHER, "higher")}
_TESTED = ("dnsmos", "speaker", "clap", "style")
_RATES = ("wer", "prefix_wer")
"""The first of these that a judge has is tested; of whole takes they are the same."""


@dataclass(frozen=True)
class Metric:
    """A column of numbers.

    Attributes:
        better: which way is good; None where neither is, or nobody said.
        source: "reward" and "score" took part in the selection and mean the same only under the same scorer; "judge"
            did not; "timing" is of this machine; "audio" is the length.
        tested: whether its comparisons belong to the family that is tested.
    """

    name: str
    better: Better | None
    source: Source
    tested: bool

    @property
    def sign(self) -> float:
        """-1 where lower is better, else 1."""
        return -1.0 if self.better == "lower" else 1.0

    @property
    def leaf(self) -> str:
        """The name without where it is from."""
        return self.name.rsplit(".", 1)[-1]

    @property
    def is_word_error_rate(self) -> bool:
        return self.leaf in _RATES


def metrics_of(rows: Sequence[Row], tested: Collection[str] | None, directions: Mapping[str, Better]) -> list[Metric]:
    """Metrics of the rows' columns, in the order in which they come up.

    Args:
        tested: names of those to test; None: see above.
        directions: which way is good, by name, beside what is known.

    Raises:
        ValueError: a name in `tested` or `directions` is no metric, or a tested one has no direction.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    sources = {name: source for name in columns if (source := _source(name)) is not None}
    numbers = [name for name in sources if not any(isinstance(row.get(name), str) for row in rows)]
    for name in (*(tested or ()), *directions):
        if name not in numbers:
            raise ValueError(f"metric: {name!r} is not in this run; it has {', '.join(numbers)}")
    better = {name: directions.get(name, _direction(name, sources[name])) for name in numbers}
    chosen = _default_tests(numbers) if tested is None else tested
    for name in tested or ():
        if better[name] is None:
            raise ValueError(f"metric: which way {name!r} is good is not known; say so in directions")
    return [Metric(name, better[name], sources[name], name in chosen) for name in numbers]


def _source(column: str) -> Source | None:
    if column.endswith((".transcript", ".words")):
        return None
    if column.startswith(JUDGE):
        return "judge"
    if column.startswith(SCORE):
        return "score"
    if column in TIMES:
        return "timing"
    return {"reward": "reward", "seconds": "audio"}.get(column)  # type: ignore[return-value]


def _direction(name: str, source: Source) -> Better | None:
    return "lower" if source == "timing" else _DIRECTIONS.get(name.rsplit(".", 1)[-1])


def _default_tests(numbers: Sequence[str]) -> set[str]:
    """By judge, what is worth a test; of a judge that has none of these, its reward."""
    chosen: set[str] = set()
    judges: dict[str, list[str]] = {}
    for name in numbers:
        if name.startswith(JUDGE):
            judge, leaf = name.rsplit(".", 1)
            judges.setdefault(judge, []).append(leaf)
    for judge, leaves in judges.items():
        rates = [leaf for leaf in _RATES if leaf in leaves][:1]
        worth = [*rates, *(leaf for leaf in _TESTED if leaf in leaves)] or [leaf for leaf in leaves if leaf == "reward"]
        chosen |= {f"{judge}.{leaf}" for leaf in worth}
    return chosen
