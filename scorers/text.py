"""What was heard, put beside what should have been said, in words. Knows neither audio nor recognisers.

Both texts are brought into the spoken form of one normaliser, Whisper's own, and aligned by least edits with jiwer.
Stage directions, in (..), [..], <..> or *..*, are no words. All rates are errors over the words of the whole text, so
they are never clipped and may exceed 1. A text without words counts as one: each word that is heard is an error, and
nothing heard is flawless.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import jiwer
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

from scorers.heads import Term

NORMALISER = f"whisper-normalizer {version('whisper-normalizer')}"
"""Name and version: its English rules for English and where no language is given, else its basic rules."""

WITHOUT_SPACES = frozenset({"chinese", "cantonese", "japanese", "thai", "lao", "burmese"})
"""Languages written without spaces between words: each character counts as a word."""

GRACE_SECONDS = 0.8
"""Silence before the first word, and the time that a recogniser needs to be sure of the last."""

SLOWEST = 10.0
"""Letters a second. Less than half of 21.5, the lowest rate at which twenty readings of the built-in voice, heard by
Whisper base every 0.4 s, are behind anywhere."""

LETTERS_OF_A_DIGIT = 5

TERMS = (
    Term("prefix_wer", "lower", f"word errors so far over the words of the text ({NORMALISER}); at the end, the WER"),
    Term("wer", "lower", "word errors against the whole text over its words, also while it is being said"),
    Term("wer_plain", "lower", "the WER without a normaliser: lower case, no punctuation, numbers as they are written"),
    Term("cer", "lower", "character errors against the whole text over its characters"),
    Term("extra_words", "lower", "words heard that are not in the text"),
    Term("missing_words", "lower", "words of the text that were skipped; at the end, all that were not heard"),
    Term("first_word", "higher", "1 if the first word of the text was heard, else 0"),
    Term("words_behind", "lower", "words behind the slowest ordinary reading over the words of the text; 0 at the end"),
)

_DIRECTION = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|<[^<>\s][^<>]*>|\*[^*\s][^*]*\*")


@dataclass(frozen=True)
class Reference:
    """A text as it should be heard.

    Attributes:
        words: normalised, in order; may be empty.
        plain: in lower case and without punctuation, else as they were written.
        directions: stage directions that were left out, as they were written.
        language: whose rules what is heard goes by, an English name in lower case.
    """

    words: tuple[str, ...]
    plain: tuple[str, ...]
    directions: tuple[str, ...]
    language: str


def reference_of(text: str, language: str | None = None) -> Reference:
    """The text in the form that everything heard is compared with; `language` is an English name or None."""
    tongue = (language or "english").strip().lower()
    return Reference(spoken_words(text, tongue), plain_words(text), tuple(_DIRECTION.findall(text)), tongue)


def spoken_words(text: str, language: str) -> tuple[str, ...]:
    """The words of a text by `NORMALISER`, without its stage directions."""
    # The English rules take "..." for punctuation but not "…", which is the same after compatibility decomposition.
    plain = unicodedata.normalize("NFKC", _DIRECTION.sub(" ", text))
    words = _normaliser(language)(plain).split()
    return tuple(word for word in words if any(letter.isalnum() for letter in word))


def plain_words(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, without stage directions and without punctuation but apostrophes."""
    spaced = "".join(letter if letter.isalnum() or letter in "'’" else " " for letter in _DIRECTION.sub(" ", text))
    return tuple(word.strip("'’") for word in spaced.lower().replace("’", "'").split() if word.strip("'’"))


def compare(
    reference: Reference, transcript: str, *, finished: bool, seconds: float, cut: bool = False
) -> dict[str, float]:
    """Every one of `TERMS`, for a transcript of `seconds` of audio.

    While a row is unfinished, `prefix_wer`, `extra_words` and `missing_words` come from the prefix of the text that
    fits best, the longest of those that fit alike; a last word that begins the word which is due next is free. Where
    the audio is known to be `cut` inside a word, recognisers guess: then the last word is free whatever it is. When a
    row is finished, the whole text is due and nothing is free.

        words_behind = max(0, due - reached) / words of the text,
        due: words whose letters are said after `GRACE_SECONDS` at `SLOWEST` letters a second, a digit being
        `LETTERS_OF_A_DIGIT` letters; reached: words in the prefix that fits best
    """
    words = reference.words
    heard = spoken_words(transcript, reference.language)
    fit = Fit(len(words), len(words), len(heard)) if finished else best_fit(words, heard, cut)
    so_far, whole = _aligned(words[: fit.matched], heard[: fit.judged]), _aligned(words, heard)
    written = _aligned(reference.plain, plain_words(transcript))
    spelled = jiwer.process_characters(" ".join(words), " ".join(heard))
    total = max(1, len(words))
    letters_wrong = spelled.substitutions + spelled.deletions + spelled.insertions
    return {
        "prefix_wer": _errors(so_far) / total,
        "wer": _errors(whole) / total,
        "wer_plain": _errors(written) / max(1, len(reference.plain)),
        "cer": letters_wrong / max(1, len(" ".join(words))),
        "extra_words": float(so_far.insertions),
        "missing_words": float(so_far.deletions),
        "first_word": float(not words or _has_first(so_far) or fit.reached > fit.matched == 0),
        "words_behind": 0.0 if finished else max(0, due_by(words, seconds) - fit.reached) / total,
    }


def word_errors(reference: Reference, transcript: str) -> int:
    """Substitutions, deletions and insertions that make the whole text the whole transcript."""
    return _errors(_aligned(reference.words, spoken_words(transcript, reference.language)))


@dataclass(frozen=True)
class Fit:
    """The prefix of a text that fits what was heard.

    Attributes:
        reached: words in the prefix.
        matched, judged: words of the text, and of what was heard, that are aligned; less than `reached` and than all
            where the last word is free.
    """

    reached: int
    matched: int
    judged: int


def best_fit(words: tuple[str, ...], heard: tuple[str, ...], cut: bool = False) -> Fit:
    """The prefix of the text with the fewest errors, of an unfinished row; see `compare`."""
    costs, earlier = _edits_to_prefixes(words, heard)
    fits = [(cost, Fit(place, place, len(heard))) for place, cost in enumerate(costs)]
    if heard:
        last = len(heard) - 1
        begun = [place for place, word in enumerate(words) if begins(heard[-1], word)]
        fits += [(earlier[place], Fit(place + 1, place, last)) for place in begun]
        fits += [(cost, Fit(place, place, last)) for place, cost in enumerate(earlier) if cut]
    return min(fits, key=lambda pair: (pair[0], -pair[1].reached, -pair[1].matched))[1]


def begins(fragment: str, word: str) -> bool:
    """Whether a word may end up as `word`: "chil" as "children", and 20 as 25, whose spoken form begins so."""
    if fragment.isdecimal() and word.isdecimal():
        return word.startswith(fragment.rstrip("0") or fragment)
    return word.startswith(fragment)


def due_by(words: tuple[str, ...], seconds: float) -> int:
    """Words that even the slowest ordinary reading has said after so many seconds."""
    spoken, letters = (seconds - GRACE_SECONDS) * SLOWEST, 0
    for place, word in enumerate(words):
        letters += sum(LETTERS_OF_A_DIGIT if letter.isdecimal() else 1 for letter in word)
        if letters > spoken:
            return place
    return len(words)


def _edits_to_prefixes(words: tuple[str, ...], heard: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Least edits from what was heard to each prefix of the text; and the same without the last word heard."""
    row = earlier = list(range(len(words) + 1))
    for count, one in enumerate(heard, start=1):
        earlier, row = row, [count]
        for place, word in enumerate(words):
            row.append(min(earlier[place] + (one != word), earlier[place + 1] + 1, row[place] + 1))
    return row, earlier


def _aligned(words: tuple[str, ...], heard: tuple[str, ...]) -> jiwer.WordOutput:
    return jiwer.process_words(" ".join(words), " ".join(heard))


def _errors(output: jiwer.WordOutput) -> int:
    errors: int = output.substitutions + output.deletions + output.insertions
    return errors


def _has_first(output: jiwer.WordOutput) -> bool:
    return any(chunk.type == "equal" and chunk.ref_start_idx == 0 for chunk in output.alignments[0])


@cache
def _normaliser(language: str) -> Callable[[str], str]:
    if language in ("english", "en"):
        english: Callable[[str], str] = EnglishTextNormalizer()
        return english
    basic: Callable[[str], str] = BasicTextNormalizer(split_letters=language in WITHOUT_SPACES, preserve_marks=True)
    return basic
