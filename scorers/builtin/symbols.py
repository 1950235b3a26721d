"""What the listener tells apart: the phonemes of the built-in front end, without stress, length and punctuation.

Ids are those of the front end's alphabet (0..178, hibari-tts 0.2.1). Knows nothing of words or spelling.
"""

from __future__ import annotations

from collections.abc import Iterable

BLANK = 0
SYMBOLS = 180  # ids of the front end, its padding 0 among them

_LETTERS = {
    24: "A", 25: "I", 31: "O", 36: "T", 39: "W", 41: "Y", 44: "b", 46: "d", 48: "f", 50: "h", 51: "i", 52: "j",
    53: "k", 54: "l", 55: "m", 56: "n", 58: "p", 61: "s", 62: "t", 63: "u", 64: "v", 65: "w", 68: "z", 69: "ɑ",
    72: "æ", 76: "ɔ", 81: "ð", 82: "ʤ", 83: "ə", 86: "ɛ", 87: "ɜ", 92: "ɡ", 102: "ɪ", 112: "ŋ", 119: "θ", 123: "ɹ",
    131: "ʃ", 133: "ʧ", 135: "ʊ", 138: "ʌ", 147: "ʒ",
}  # fmt: skip

# Spelled apart by the front end, spoken alike by its voice: ᵊ and ɐ are ə, ᵻ is ɪ.
_SAME_SOUND = {42: 83, 70: 83, 177: 102}

_CLASS = {symbol: place for place, symbol in enumerate(_LETTERS, start=1)}
CLASSES = len(_CLASS) + 1  # the blank is class 0
LETTERS = ("", *_LETTERS.values())  # of each class, in the front end's alphabet


def class_of(symbol: int) -> int:
    """Class of one symbol id, 1..CLASSES - 1; 0 for what is not a sound of its own (stress, spaces, punctuation)."""
    return _CLASS.get(_SAME_SOUND.get(symbol, symbol), 0)


def spelled(classes: Iterable[int]) -> str:
    """Phonemes for people, such as `kˈæt` without its stress mark: `kæt`."""
    return "".join(LETTERS[found] for found in classes)
