"""Speech that goes wrong, made in code space: what is said changes, and the phone tokens keep saying what is said.

The kinds of error are those that a language model makes: a phone for another, a phone too few, words said twice, left
out or out of order, another utterance's words in between, cut ends. It does not know the text that was asked for.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from codec.builtin.network import PHONES, SEMANTIC
from scorers.builtin.symbols import class_of

SPACE = 16
Codes = NDArray[np.int64]
_IS_SOUND = np.asarray([class_of(symbol) > 0 for symbol in range(180)])


def damaged(codes: Codes, others: list[Codes], book_sizes: list[int], rng: np.random.Generator) -> Codes:
    """A damaged copy of one utterance's codes [F, q]; `others` lend their phones, words and residual codes."""
    result = codes.copy()
    if rng.random() < 0.6:
        result = _rearranged(result, others, rng)
    if rng.random() < 0.8:
        result[:, :PHONES] = _other_phones(result[:, :PHONES], others, float(rng.uniform(0, 0.3)), rng)
    pitch = slice(PHONES, SEMANTIC - 1)
    voiced = result[:, pitch] > 0
    if rng.random() < 0.5:
        moved = result[:, pitch] + int(rng.integers(-12, 13)) + rng.integers(-3, 4, result[:, pitch].shape)
        result[:, pitch] = np.where(voiced, np.clip(moved, 1, book_sizes[PHONES] - 1), 0)
    if rng.random() < 0.5:
        louder = result[:, SEMANTIC - 1] + int(rng.integers(-8, 7)) + rng.integers(-3, 4, len(result))
        result[:, SEMANTIC - 1] = np.clip(louder, 0, book_sizes[SEMANTIC - 1] - 1)
    if rng.random() < 0.6:
        hit = rng.random(len(result)) < rng.uniform(0, 0.7)
        lender = others[int(rng.integers(len(others)))]
        drawn = lender[rng.integers(0, len(lender), len(result)), SEMANTIC:]
        result[:, SEMANTIC:] = np.where(hit[:, None], drawn, result[:, SEMANTIC:])
    return result


def _gaps(codes: Codes) -> NDArray[np.int64]:
    """Frames at which a word ends, the ends of the utterance among them."""
    inner = np.flatnonzero((codes[:, :PHONES] == SPACE).any(1))
    first = inner[np.diff(inner, prepend=-9) > 1]
    return np.concatenate([[0], first[(first > 1) & (first < len(codes) - 1)], [len(codes)]])


def _rearranged(codes: Codes, others: list[Codes], rng: np.random.Generator) -> Codes:
    gaps = _gaps(codes)
    words = [codes[start:stop] for start, stop in pairwise(gaps)]
    for _ in range(int(rng.integers(1, 3))):
        place = int(rng.integers(len(words)))
        match int(rng.integers(5)):
            case 0:
                words.insert(place, words[place])
            case 1 if len(words) > 1:
                words.pop(place)
            case 2 if len(words) > 1:
                other = int(rng.integers(len(words)))
                words[place], words[other] = words[other], words[place]
            case 3:
                lender = others[int(rng.integers(len(others)))]
                borders = _gaps(lender)
                first = int(rng.integers(len(borders) - 1))
                words.insert(place, lender[borders[first] : borders[min(first + 2, len(borders) - 1)]])
            case _:
                words[-1] = words[-1][: max(1, len(words[-1]) - int(rng.integers(0, 6)))]
    return np.concatenate(words)


def _other_phones(phones: Codes, others: list[Codes], share: float, rng: np.random.Generator) -> Codes:
    """Some runs of one phone become another phone, or are swallowed by the run before."""
    track = phones.reshape(-1).copy()
    starts = np.flatnonzero(np.diff(track, prepend=-1))
    stops = np.append(starts[1:], len(track))
    lender = np.concatenate([other[:, :PHONES].reshape(-1) for other in others])
    lender = lender[_IS_SOUND[lender]]
    for start, stop in zip(starts, stops, strict=True):
        if not _IS_SOUND[track[start]] or rng.random() >= share:
            continue
        swallowed = rng.random() < 0.25 and start > 0
        track[start:stop] = track[start - 1] if swallowed else lender[int(rng.integers(len(lender)))]
    return track.reshape(phones.shape)
