"""Against what Whisper says when it hears nothing, or cannot stop: judgements on what was decoded. Knows no audio."""

from __future__ import annotations

import math

NO_SPEECH, UNLIKELY = 0.6, -1.0
"""Whisper's own rule: above this probability of no speech, and below this mean log-probability, nothing was said."""

TOKENS, TOKENS_PER_SECOND = 8, 10
"""Most tokens that audio can hold; the built-in voice needs about 4 a second."""

REPEATS = 3
"""So many of a loop are left, so that a voice that loops is still heard looping."""

LONGEST_LOOP = 12
"""Words of the longest phrase that loops are looked for with."""


def token_budget(seconds: float) -> int:
    """Most tokens that so much audio can hold."""
    return TOKENS + math.ceil(TOKENS_PER_SECOND * seconds)


def is_no_speech(no_speech: float, log_probability: float) -> bool:
    """Whether what was decoded was made up. A `no_speech` that is NaN decides nothing, so it does not acquit either."""
    return not no_speech <= NO_SPEECH and log_probability < UNLIKELY


def without_loops(words: list[str]) -> list[str]:
    """The words, with every phrase that follows itself more than `REPEATS` times cut to so many."""
    kept: list[str] = []
    for word in words:
        kept.append(word)
        for length in range(1, LONGEST_LOOP + 1):
            phrase = [one.lower().strip(".,!?;:") for one in kept[-length * (REPEATS + 1) :]]
            if len(phrase) == length * (REPEATS + 1) and phrase == phrase[:length] * (REPEATS + 1):
                del kept[-length:]
                break
    return kept
