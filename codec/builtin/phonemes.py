"""The front end of the built-in voice: English text to the symbols that it speaks in and its listener hears in.

The phone tokens of the codec are these symbols, which is why both the engine and the listener find them here. The
grapheme-to-phoneme rules are hibari-tts's. It does not know how long a symbol lasts, nor how long a text may be.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SYMBOLS = 180
PAD = 0
"""Symbol id at both ends of an utterance, and of silence."""

Word = tuple[str, tuple[int, ...]]
"""Spelling, and the symbol ids of the word with the punctuation and the space that follow it."""

_Piece = tuple[str, str]
_UNSPOKEN = frozenset(';:,.!?—…"()“” ˈˌː')
_WRAPPING = "\"'“”‘’()[]{}<>"


class NothingToSayError(ValueError):
    """The text holds no word."""


@dataclass(frozen=True)
class Phonemes:
    """A text as the voice reads it.

    Attributes:
        ids: symbol ids 0..179, with the pad at both ends.
        words: in order; their symbols, joined, are `ids` without the two pads.
    """

    ids: tuple[int, ...]
    words: tuple[Word, ...]


@lru_cache(maxsize=256)
def phonemize(text: str) -> Phonemes:
    """The symbols and words of any English text: numbers, abbreviations and unknown words are read out.

    Raises:
        NothingToSayError: no word is left, as in "..." or an emoji.
        ValueError: a word is not in Latin letters, or the rules cannot cope with it.
    """
    vocabulary = _front_end().vocabulary
    words = [(word, tuple(vocabulary[sound] for sound in sounds)) for word, sounds in _words(_front_end().pieces(text))]
    if not words:
        raise NothingToSayError(f"text: {text[:40]!r} has nothing to say; give at least one English word")
    return Phonemes((PAD, *(symbol for _, symbols in words for symbol in symbols), PAD), tuple(words))


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order; punctuation without a word can be one too."""
    return _front_end().sentences(text)


class _FrontEnd:
    """hibari-tts's rules, without its voice."""

    def __init__(self) -> None:
        # Half a second to import and as much to load: paid when the first text is read, not by every command.
        from hibari import Hibari, g2p
        from hibari.tts import ASSETS

        self._split, self._normalize, self._rules = Hibari.split_sentences, g2p.normalize, g2p.G2P()
        self.vocabulary: dict[str, int] = json.loads((Path(ASSETS) / "vocab.json").read_text(encoding="utf-8"))

    def sentences(self, text: str) -> list[str]:
        return list(self._split(text))

    def pieces(self, text: str) -> Iterator[_Piece]:
        """Spelling and sounds of every token, a space after the sounds where the text has one."""
        for sentence in self.sentences(text):
            try:
                tokens = self._rules.phonemize_tokens(self._rules.tokenize(self._normalize(sentence)))
            except Exception as error:
                raise ValueError(
                    f"text: {sentence[:40]!r} cannot be read ({type(error).__name__}); put the odd part in words"
                ) from error
            for token in tokens:
                _check_script(text, token.text)
                sounds = "".join(sound for sound in token.phonemes or "" if sound in self.vocabulary)
                yield token.text, sounds + (" " if token.whitespace else "")
            yield "", " "


@lru_cache(maxsize=1)
def _front_end() -> _FrontEnd:
    return _FrontEnd()


def _check_script(text: str, token: str) -> None:
    """The rules skip what they cannot read, or invent a reading: better to say so."""
    for letter in token:
        if letter.isalpha() and "LATIN" not in unicodedata.name(letter, ""):
            raise ValueError(
                f"text: {token[:40]!r} in {text[:40]!r} is not in Latin letters; this voice reads English only"
            )


def _words(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Pieces joined to words, so that every sound belongs to one: what is not spoken goes to the word before it."""
    words: list[list[str]] = []
    before = currency = ""
    last = " "
    for spelling, sounds in pieces:
        kept = sounds.lstrip() if last == " " else sounds  # tokens without a reading leave two spaces behind
        last = kept[-1:] or last
        if _UNSPOKEN.issuperset(kept):
            currency = spelling if len(spelling) == 1 and unicodedata.category(spelling) == "Sc" else ""
            if words:
                words[-1][1] += kept
            else:
                before += kept
            continue
        words.append([currency + spelling.strip(_WRAPPING), before + kept])
        before = currency = ""
    if words:
        words[-1][1] = words[-1][1].rstrip()
    return [(spelling, sounds) for spelling, sounds in words]
