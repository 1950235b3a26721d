"""Every dial of a search, checked when it is built. Knows no engine: what an engine decides for itself is None here."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

MAX_SECONDS = 60.0
MAX_CANDIDATES = 64
# Beyond these, single precision overflows or the distribution is a single code.
LEAST_TEMPERATURE, MOST_TEMPERATURE = 1e-3, 100.0
MOST_GUIDANCE = 100.0
MOST_STOP_BIAS = 100.0
LEAST_PENALTY, MOST_PENALTY = 0.01, 100.0
WHOLE_UTTERANCE = 1_000_000
"""A `chunk_frames` that no utterance reaches: candidates are compared once, when they have all ended."""


@dataclass(frozen=True)
class Sampling:
    """How an engine draws: the part of the configuration that reaches the model.

    `guidance` is the classifier-free guidance scale (1 is none; None lets the engine choose); `seed` keys the random
    stream of every row. The other fields mean what they mean in `SearchConfig`. An engine refuses what it would ignore.
    """

    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 0.95
    repetition_penalty: float = 1.0
    text_temperature: float = 1.0
    guidance: float | None = None
    seed: int = 777
    stop_bias: float = 0.0
    min_seconds: float = 0.0

    def least_frames(self, frame_rate: Fraction) -> int:
        """Frames before which no row may say that it is done: `min_seconds`, a part of a frame counting as a whole."""
        return math.ceil(_as_written(self.min_seconds) * frame_rate)


@dataclass(frozen=True)
class SearchConfig:
    """Settings of one search. A wrong one raises `ValueError` or `TypeError`: field, value, and what is allowed.

    Attributes:
        n: candidates sampled at once, 1..64; 1 is plain sampling.
        beam_width: rows kept at each selection, 1..n.
        chunk_frames: frames between two selections (10 frames are 800 ms at 12.5 Hz).
        first_chunk_frames: a different length for the first chunk (a short one brings the first audio sooner).
        max_seconds: longest audio, up to 60 s; None leaves it to the engine's budget for the text.
        guidance: classifier-free guidance scale, 0..100; None is the engine's own default, 1 is none.
        temperature: of the audio draws; 0 is greedy, else 0.001..100.
        top_k, top_p: filters of the audio draws; 0 and 1.0 switch them off.
        repetition_penalty: divides (or, for negative logits, multiplies) the logits of codes already drawn,
            0.01..100; 1 is none.
        text_temperature: of the draw that says stop or go on; 0 is greedy, else 0.001..100.
        seed: any non-negative integer below 2^63.
        max_lag_seconds: longest stretch of audio that may wait uncommitted while beams disagree; None is no limit.
        stop_bias: taken from the logit that says stop, -100..100; above 0 rows go on for longer.
        min_seconds: audio before which no row may stop, 0..60 s and at most `max_seconds`.
    """

    n: int = 8
    beam_width: int = 1
    chunk_frames: int = 10
    first_chunk_frames: int | None = None
    max_seconds: float | None = None
    guidance: float | None = None
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 0.95
    repetition_penalty: float = 1.0
    text_temperature: float = 1.0
    seed: int = 777
    max_lag_seconds: float | None = None
    stop_bias: float = 0.0
    min_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._whole("n", 1, MAX_CANDIDATES)
        self._whole("beam_width", 1, self.n, "n")
        self._whole("chunk_frames", 1, WHOLE_UTTERANCE)
        if self.first_chunk_frames is not None:
            self._whole("first_chunk_frames", 1, WHOLE_UTTERANCE)
        if self.max_seconds is not None:
            _real("max_seconds", self.max_seconds, above=0.0, most=MAX_SECONDS)
        if self.guidance is not None:
            _real("guidance", self.guidance, least=0.0, most=MOST_GUIDANCE)
        _temperature("temperature", self.temperature)
        self._whole("top_k", 0, 1 << 31)
        _real("top_p", self.top_p, above=0.0, most=1.0)
        _real("repetition_penalty", self.repetition_penalty, least=LEAST_PENALTY, most=MOST_PENALTY)
        _temperature("text_temperature", self.text_temperature)
        self._whole("seed", 0, (1 << 63) - 1)
        if self.max_lag_seconds is not None:
            _real("max_lag_seconds", self.max_lag_seconds, least=0.0)
        _real("stop_bias", self.stop_bias, least=-MOST_STOP_BIAS, most=MOST_STOP_BIAS)
        _real("min_seconds", self.min_seconds, least=0.0, most=MAX_SECONDS)
        if self.max_seconds is not None and self.min_seconds > self.max_seconds:
            raise ValueError(f"min_seconds: {self.min_seconds} is out of range; max_seconds = {self.max_seconds:g}")

    def override(self, changes: dict[str, Any]) -> SearchConfig:
        """A copy with some fields changed; a name that is no field is a `TypeError` that lists them."""
        known = [setting.name for setting in fields(self)]
        for name in changes:
            if name not in known:
                raise TypeError(f"{name}: not a setting of a search; allowed are {', '.join(known)}")
        return replace(self, **changes)

    @property
    def sampling(self) -> Sampling:
        """The part that reaches the engine."""
        return Sampling(**{f.name: getattr(self, f.name) for f in fields(Sampling)})

    def frame_limit(self, engine_budget: int, frame_rate: Fraction) -> int:
        """Frames that an utterance may take: `max_seconds` where given, else the engine's budget; never over 60 s.

        A budget that `min_seconds` would use up makes room for as much again, so that rows can come to an end.
        """
        ceiling = math.floor(MAX_SECONDS * frame_rate)
        if self.max_seconds is None:
            least = self.sampling.least_frames(frame_rate)
            return max(1, min(max(engine_budget, 2 * least), ceiling))
        return max(1, min(math.floor(_as_written(self.max_seconds) * frame_rate), ceiling))

    def _whole(self, name: str, least: int, most: int, most_name: str = "") -> None:
        """Check a whole-number field and keep it as a plain int, which numpy's integers are not."""
        given = getattr(self, name)
        try:
            value = operator.index(given)
        except TypeError:
            value = None
        if value is None or isinstance(given, bool):
            raise TypeError(f"{name}: {given!r} is a {type(given).__name__}; it must be an integer")
        if not least <= value <= most:
            limit = f"{most_name} = {most}" if most_name else f"{most}"
            raise ValueError(f"{name}: {value} is out of range; allowed is {least} to {limit}")
        object.__setattr__(self, name, value)


def _as_written(seconds: float) -> Fraction:
    """As written, not as stored: 0.24 s are three frames of 80 ms, though the nearest float is a little less."""
    return Fraction(str(seconds))


def _temperature(name: str, value: object) -> None:
    if value != 0.0 or isinstance(value, bool):
        _real(name, value, least=LEAST_TEMPERATURE, most=MOST_TEMPERATURE, words="0, or ")


def _real(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    words: str = "",
) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: {value!r} is a {type(value).__name__}; it must be a number")
    low = least if least is not None else above
    assert low is not None
    inside = math.isfinite(value) and (value >= low if above is None else value > low)
    if not inside or (most is not None and value > most):
        words += f"{'at least' if above is None else 'above'} {low:g}" + (
            f" and at most {most:g}" if most is not None else ""
        )
        raise ValueError(f"{name}: {value} is out of range; it must be {words}")
