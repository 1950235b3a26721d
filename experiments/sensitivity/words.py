"""Where the words of the built-in voice lie, read from its own phone codes. Knows no audio and no recogniser.

Books 0 to 3 of a frame name the sound of each 20 ms of the next frame, so boundaries are known to 20 ms without any
alignment of audio. Where the voice does not say what it should, a boundary is where the least of it is wrong.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from codec.builtin.phonemes import phonemize
from scorers.builtin.symbols import class_of

PHONE_BOOKS = 4
PHONE_SAMPLES = 480
"""Samples at 24 kHz that a phone token covers, 20 ms."""

SKIPPED = 0.3
"""What a symbol costs that has no token, where a token with another symbol costs 1: short sounds are often skipped."""

Span = tuple[int, int]


def word_spans(frames: Tensor, text: str) -> list[Span]:
    """First and one past the last sample of every word, in order; int64 [T, 9] frames of the text.

    A word ends where the next begins, halfway through the gap between them; the last ends with its last sound.

    Raises:
        ValueError: a word of the text has no sound in these frames.
    """
    read = phonemize(text)
    owner = [number for number, (_, sounds) in enumerate(read.words) for _ in sounds]
    owner = [-1, *owner, -1]  # the pads belong to no word
    track = frames[:, :PHONE_BOOKS].flatten().numpy()
    voiced: dict[int, list[int]] = {}
    for token, place in enumerate(aligned(track, np.asarray(read.ids)).tolist()):
        if owner[place] >= 0 and class_of(read.ids[place]):
            voiced.setdefault(owner[place], []).append(token)
    silent = [word for number, (word, _) in enumerate(read.words) if number not in voiced]
    if silent:
        raise ValueError(f"text: {silent[0]!r} of {text[:40]!r} has no sound in these frames")
    begins = [voiced[number][0] for number in range(len(read.words))]
    ends = [voiced[number][-1] + 1 for number in range(len(read.words))]
    gaps = zip(ends[:-1], begins[1:], strict=True)
    cuts = [begins[0], *((end + begin) / 2 for end, begin in gaps), ends[-1]]
    # Tokens are one frame ahead of the audio.
    samples = [round((cut + PHONE_BOOKS) * PHONE_SAMPLES) for cut in cuts]
    return list(pairwise(samples))


def aligned(track: NDArray[np.int64], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place in `symbols` [J] of every token of `track` [K], never falling, at least cost; int64 [K]."""
    place = np.arange(len(symbols))
    jump = place[None, :] - place[:, None]
    moving = np.where(jump < 0, np.inf, SKIPPED * np.maximum(0, jump - 1))
    cost = SKIPPED * place + (track[0] != symbols)
    origins = []
    for token in track[1:]:
        reached = cost[:, None] + moving
        origins.append(reached.argmin(0))
        cost = reached.min(0) + (token != symbols)
    path = [int((cost + SKIPPED * place[::-1]).argmin())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return np.asarray(path[::-1])
