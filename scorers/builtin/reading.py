"""What was heard, put beside what should have been said: words right, mis-said, missing and extra.

The free reading is aligned with the target's sounds by least edits, where a sound that may be the wanted one counts as
it, and one that may be nothing costs nothing. The reward does not come from here, but what people read does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorers.builtin.free import Sound
from scorers.builtin.symbols import BLANK, spelled
from scorers.builtin.target import Target

SOUNDS_PER_EXTRA_WORD = 4  # an inserted run counts as one word for every so many sounds, at least one


@dataclass(frozen=True)
class Reading:
    """One row's audio so far, in words.

    Attributes:
        transcript: right words in their spelling, what else was heard between slashes.
        errors: words mis-said, missing or extra.
        words: of the reference, that should have been heard by now.
    """

    transcript: str
    errors: int
    words: int

    @property
    def wer(self) -> float:
        """Word errors over reference words; over 1 where nothing was due but something was said."""
        return self.errors / max(1, self.words)


def align(heard: Sequence[Sound], target: Target, finished: bool) -> Reading:
    """Compare the sounds heard with the prefix of the target that fits best, or with all of it when `finished`.

    While a row is unfinished the word still being spoken is free, and so is less than a word after the last whole one.
    """
    costs = _edit_costs(heard, target.classes)
    reached = len(target.classes) if finished else int(np.flatnonzero(costs[-1] == costs[-1].min())[-1])
    # Equal costs can place a gap inside one word or across two; of the two extreme alignments the kinder one is true.
    readings = [
        _in_words(*_traced(costs, heard, target.classes, reached, early), target, reached, finished)
        for early in (False, True)
    ]
    return min(readings, key=lambda reading: reading.errors)


def _extra_cost(sound: Sound) -> int:
    return 1 - (sound.maybe >> BLANK & 1)


def _wrong_cost(sound: Sound, wanted: int) -> int:
    return 1 - (sound.maybe >> wanted & 1)


def _edit_costs(heard: Sequence[Sound], wanted: list[int]) -> NDArray[np.int64]:
    """Least edits [heard + 1, wanted + 1] between all prefixes."""
    goal = np.asarray(wanted, np.int64)
    place = np.arange(len(wanted) + 1)
    costs = np.empty((len(heard) + 1, len(wanted) + 1), np.int64)
    costs[0] = place
    for i, sound in enumerate(heard, start=1):
        row = costs[i - 1] + _extra_cost(sound)
        np.minimum(row[1:], costs[i - 1, :-1] + 1 - (sound.maybe >> goal & 1), out=row[1:])
        costs[i] = np.minimum.accumulate(row - place) + place
    return costs


def _traced(
    costs: NDArray[np.int64], heard: Sequence[Sound], wanted: list[int], reached: int, early: bool
) -> tuple[list[int | None], list[list[int]]]:
    """What was said in place of each of the first `reached` wanted sounds, and what was said extra before each.

    Where several alignments cost the same, sounds are matched as `early` as they can be, or as late.
    """
    said: list[int | None] = [None] * reached
    extra: list[list[int]] = [[] for _ in range(reached + 1)]
    i, j = len(heard), reached
    while i or j:
        here = costs[i, j]
        matched = bool(i and j and here == costs[i - 1, j - 1] + _wrong_cost(heard[i - 1], wanted[j - 1]))
        missing = bool(j and here == costs[i, j - 1] + 1)
        spare = bool(i and here == costs[i - 1, j] + _extra_cost(heard[i - 1]))
        if matched and not (early and (missing or spare)):
            i, j = i - 1, j - 1
            said[j] = heard[i].best if _wrong_cost(heard[i], wanted[j]) else wanted[j]
        elif missing and not (spare and not _extra_cost(heard[i - 1])):
            j -= 1
        else:
            i -= 1
            if _extra_cost(heard[i]):
                extra[j].insert(0, heard[i].best)
    return said, extra


def _in_words(said: list[int | None], extra: list[list[int]], target: Target, reached: int, finished: bool) -> Reading:
    pieces: list[str] = []
    errors = words = start = 0
    for number, word in enumerate(target.words):
        if reached <= start and not finished:
            break
        stop = start + target.word_of.count(number)
        errors += _extra_words(extra[start], pieces)
        heard = [part for j in range(start, min(stop, reached)) for part in (*(extra[j] if j > start else ()), said[j])]
        sounds = [part for part in heard if part is not None]
        whole = reached >= stop
        right = sounds == target.classes[start : min(stop, reached)]
        words += whole
        errors += whole and not right
        if sounds:
            pieces.append((word if whole else f"{word}…") if right else f"/{spelled(sounds)}/")
        start = stop
    rest = extra[reached]
    if rest and (finished or len(rest) >= SOUNDS_PER_EXTRA_WORD or reached == len(target.classes)):
        errors += _extra_words(rest, pieces)
    elif rest:
        pieces.append(f"/{spelled(rest)}/")
    return Reading(" ".join(pieces), errors, words)


def _extra_words(sounds: list[int], pieces: list[str]) -> int:
    if not sounds:
        return 0
    pieces.append(f"/{spelled(sounds)}/")
    return max(1, round(len(sounds) / SOUNDS_PER_EXTRA_WORD))
