"""The damages, and for each the terms that are meant to hear it: the right answers, written before any measurement.

A damage makes a copy of a take. It knows no scorers; how bad a damage sounds to people is not known here either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import numpy as np

from experiments.sensitivity.sound import (
    SAMPLE_RATE,
    Pcm,
    band_limited,
    clipped,
    joined,
    other_voice,
    rms,
    stretched,
    with_clicks,
    with_noise,
)
from experiments.sensitivity.words import Span

PAUSE_SECONDS = 2.0
WORDS = ("listener.listener", "whisper.prefix_wer")
"""Terms that hear words: the listener's reward, and the word errors of Whisper."""

LATE = ("listener.pace", "whisper.words_behind")
SOUND = ("naturalness.dnsmos", "naturalness.dnsmos_p808")
VOICE = ("speaker.speaker",)


@dataclass(frozen=True)
class Take:
    """A text as the built-in voice said it, and what its damaged copies are made of.

    Attributes:
        audio: float32 [samples] at 24 kHz.
        spans: of its words, in samples.
        word: place of the word that damages are about; never the first or the last.
        misread: the same voice reading the text with another word in its place.
        foreign: a word of another take.
        babble: six other takes at once, at least as long as this one.
    """

    id: str
    text: str
    audio: Pcm
    spans: list[Span]
    word: int
    misread: Pcm
    foreign: Pcm
    babble: Pcm

    def noise(self, kind: str) -> np.random.Generator:
        """Random numbers of this take and damage alone."""
        return np.random.default_rng([crc32(self.id.encode()), crc32(kind.encode())])


@dataclass(frozen=True)
class Damage:
    """A way of spoiling a take.

    Attributes:
        what: for the table.
        meant: the terms (`head.term`) that should score the whole copy below the take; empty where none is meant to.
        early: the same of a beginning that is not finished; None where that has nothing to do with the damage.
    """

    name: str
    what: str
    make: Callable[[Take], Pcm]
    meant: tuple[str, ...]
    early: tuple[str, ...] | None = None


def skipped(take: Take) -> Pcm:
    """Without the word."""
    begin, end = take.spans[take.word]
    return joined([take.audio[:begin], take.audio[end:]])


def repeated(take: Take) -> Pcm:
    """The word twice."""
    begin, end = take.spans[take.word]
    return joined([take.audio[:end], take.audio[begin:]])


def misread(take: Take) -> Pcm:
    """Another word in the place of the word, spoken so and not spliced."""
    return take.misread


def added(take: Take) -> Pcm:
    """A word of another take after the end."""
    return joined([take.audio, take.foreign])


def cut(take: Take) -> Pcm:
    """Ends before the last word."""
    return take.audio[: take.spans[-1][0]]


def paused(take: Take) -> Pcm:
    """Silence before the word."""
    begin = take.spans[take.word][0]
    return np.concatenate(
        [take.audio[:begin], np.zeros(round(PAUSE_SECONDS * SAMPLE_RATE), np.float32), take.audio[begin:]]
    )


def white(take: Take, ratio_db: float) -> Pcm:
    """White noise added."""
    noise = take.noise("white").standard_normal(len(take.audio), np.float32)
    return with_noise(take.audio, noise, ratio_db)


def babble(take: Take, ratio_db: float) -> Pcm:
    """Six other takes added."""
    return with_noise(take.audio, take.babble, ratio_db)


def noise_alone(take: Take) -> Pcm:
    """White noise of the take's length and level."""
    noise = take.noise("alone").standard_normal(len(take.audio), np.float32)
    return noise * np.float32(rms(take.audio))


DAMAGES: tuple[Damage, ...] = (
    Damage("skipped_word", "a word skipped", skipped, WORDS, WORDS),
    Damage("repeated_word", "a word said twice", repeated, WORDS, WORDS),
    Damage("wrong_word", "another word said", misread, WORDS, WORDS),
    Damage("extra_word", "a word too many at the end", added, WORDS),
    Damage("cut_end", "the last word missing", cut, WORDS),
    *(Damage(f"white_{db}", f"white noise, {db} dB", partial(white, ratio_db=db), SOUND) for db in (20, 10, 0)),
    *(Damage(f"babble_{db}", f"babble, {db} dB", partial(babble, ratio_db=db), SOUND) for db in (20, 10, 0)),
    Damage("clipping", "a tenth of the samples clipped", lambda take: clipped(take.audio, 0.1), SOUND),
    Damage("clicks", "ten clicks a second", lambda take: with_clicks(take.audio, 10.0), SOUND),
    Damage("band_limit", "nothing above 4 kHz", lambda take: band_limited(take.audio, 4000), SOUND),
    Damage("other_voice", "pitch and formants times 0.8", lambda take: other_voice(take.audio, 0.8), VOICE),
    Damage("slower", "25 % slower", lambda take: stretched(take.audio, 1 / 0.75), ()),
    Damage("faster", "25 % faster", lambda take: stretched(take.audio, 1 / 1.25), ()),
    Damage("pause", "2 s of silence before a word", paused, ("listener.pace",), LATE),
    Damage("silence", "silence alone", lambda take: np.zeros_like(take.audio), (*WORDS, *SOUND, *VOICE), LATE),
    Damage("noise_alone", "white noise alone", noise_alone, (*WORDS, *SOUND, *VOICE), LATE),
)
