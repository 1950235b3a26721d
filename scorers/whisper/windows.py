"""How much of Whisper's thirty seconds a clip is given: windows, their padded lengths, and batches of equal ones.

The padded length depends on the clip alone, never on its batch mates. Knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from scorers.whisper.sound import SAMPLE_RATE, quietest

LONGEST = 30
"""Seconds that the encoder takes at once."""

TRAILING = 5
"""Least silence after the audio, in seconds: with less, short contexts make Whisper say the same sentence for ever."""

STEP = 5
"""Padded lengths are multiples of so many seconds, so that clips of similar length share a batch."""

EARLIEST_CUT = 20
"""Seconds of a longer clip before which no window ends."""

BATCH_OF_TEN_SECONDS = 32
"""Windows in a pass, if they are padded to 10 s; attention makes the memory of one grow with the square of that."""


def windows(pcm: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """The clip, in pieces of at most `LONGEST` seconds that end where it is quietest."""
    while len(pcm) > LONGEST * SAMPLE_RATE:
        cut = quietest(pcm, EARLIEST_CUT * SAMPLE_RATE, LONGEST * SAMPLE_RATE)
        yield pcm[:cut]
        pcm = pcm[cut:]
    yield pcm


def context_seconds(samples: int) -> int:
    """Length that a window is padded to: at least `TRAILING` seconds more than it has, a multiple of `STEP`."""
    return min(LONGEST, -(-(samples + TRAILING * SAMPLE_RATE) // (STEP * SAMPLE_RATE)) * STEP)


def batches(keys: Sequence[tuple[int, str]]) -> Iterator[tuple[tuple[int, str], list[int]]]:
    """Places of equal `keys` (seconds and language), in order, as many at a time as memory allows."""
    for key in sorted(set(keys)):
        places = [place for place, one in enumerate(keys) if one == key]
        most = max(1, BATCH_OF_TEN_SECONDS * 100 // key[0] ** 2)
        for first in range(0, len(places), most):
            yield key, places[first : first + most]
