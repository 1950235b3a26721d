"""Whisper as a head: clips in, word errors out. Knows neither CTranslate2 nor where the weights come from.

Every clip is gated (`sound.py`), cut into windows (`windows.py`), all windows of equal padded length are decoded in one
batch (`decoded.py` says how), what was made up is dropped (`guards.py`), and the words are compared with the text
(`scorers/text.py`). One thread, and no state between calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scorers import text
from scorers.heads import Clip, Judgement, Term
from scorers.whisper.decoded import Decoded, Recogniser
from scorers.whisper.guards import is_no_speech, without_loops
from scorers.whisper.languages import code_of, name_of
from scorers.whisper.sound import SAMPLE_RATE, ends_in_sound, silence_in
from scorers.whisper.windows import batches, context_seconds, windows
from search.request import SpeechRequest

NO_WORDS = -1.0
"""The confidence of hearing nothing: the mean log-probability under which Whisper itself takes words for none."""

CONFIDENCE = Term(
    "confidence", "higher", f"mean log-probability of the tokens heard, at most 0; {NO_WORDS} for no words"
)


@dataclass(frozen=True)
class Wanted:
    """What a request asks for: the words, and the code of their language."""

    reference: text.Reference
    language: str


@dataclass
class Heard:
    """What was heard in a clip, window by window."""

    windows: list[str] = field(default_factory=list)
    words: list[tuple[str, float, float]] = field(default_factory=list)
    tokens: int = 0
    log_probability: float = 0.0
    guards: list[str] = field(default_factory=list)

    @property
    def transcript(self) -> str:
        return " ".join(words for words in self.windows if words)

    @property
    def confidence(self) -> float:
        return self.log_probability / self.tokens if self.tokens else NO_WORDS


class WhisperHead:
    """Word errors of what Whisper hears; see `scorers.text.TERMS`."""

    name = "whisper"
    sample_rate = SAMPLE_RATE
    terms: tuple[Term, ...] = (*text.TERMS, CONFIDENCE)

    def __init__(
        self,
        recogniser: Recogniser,
        device: torch.device,
        *,
        language: str | None = None,
        word_timestamps: bool = False,
    ) -> None:
        self.device = device
        self._recogniser, self._language, self._timed = recogniser, language, word_timestamps

    def prepare(self, request: SpeechRequest) -> Wanted:
        """The words that are wanted; `ValueError` for a language that the model does not know."""
        code = code_of(self._language or request.language or "english")
        if code != "en" and not self._recogniser.multilingual:
            raise ValueError(
                f"language: {name_of(code)!r} is nothing that {self._recogniser.name!r} hears; give English"
            )
        return Wanted(text.reference_of(request.text, name_of(code)), code)

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        """One judgement a clip; see `ClipHead.judge`."""
        return [self._judgement(clip, heard) for clip, heard in zip(clips, self._hear(clips), strict=True)]

    def _hear(self, clips: Sequence[Clip]) -> list[Heard]:
        found = [Heard() for _ in clips]
        pieces: list[tuple[int, float, NDArray[np.float32]]] = []
        for place, clip in enumerate(clips):
            start = 0
            for piece in windows(clip.pcm):
                reason = silence_in(piece)
                if reason:
                    found[place].guards.append(reason)
                else:
                    pieces.append((place, start / SAMPLE_RATE, piece))
                start += len(piece)
        keys = [(context_seconds(len(piece)), clips[place].prepared.language) for place, _, piece in pieces]
        decoded: dict[int, Decoded] = {}
        for (seconds, language), members in batches(keys):
            audio = [pieces[member][2] for member in members]
            results = self._recogniser.decode(audio, seconds, language, self._timed)
            decoded.update(zip(members, results, strict=True))
        for member, (place, begin, _) in enumerate(pieces):
            _add(found[place], decoded[member], begin)
        return found

    def _judgement(self, clip: Clip, heard: Heard) -> Judgement:
        wanted: Wanted = clip.prepared
        note: dict[str, Any] = {"transcript": heard.transcript}
        if heard.guards:
            note["guards"] = heard.guards
        if wanted.reference.directions:
            note["stage_directions"] = list(wanted.reference.directions)
        if self._timed:
            note["words"] = [list(word) for word in heard.words]
        if math.isnan(heard.log_probability):
            nothing = {term.name: math.nan for term in self.terms}
            return Judgement(nothing, {**note, "not_judged": "the recogniser's probabilities are not finite"})
        terms = text.compare(
            wanted.reference,
            heard.transcript,
            finished=clip.finished,
            seconds=len(clip.pcm) / SAMPLE_RATE,
            cut=not clip.finished and ends_in_sound(clip.pcm),
        )
        return Judgement({**terms, CONFIDENCE.name: heard.confidence}, note)


def _add(heard: Heard, window: Decoded, begin: float) -> None:
    """Add what a window says, which begins after so many seconds, unless the guards drop it."""
    if not math.isfinite(window.log_probability):
        heard.log_probability = math.nan
        return
    if is_no_speech(window.no_speech, window.log_probability):
        heard.guards.append("no speech")
        return
    spoken = window.text.split()
    # A voice may say anything over and over; only what is more than the audio can hold is the recogniser's own loop.
    kept = without_loops(spoken) if window.cut else spoken
    heard.guards += [reason for reason, true in (("too many tokens", window.cut), ("a loop", kept != spoken)) if true]
    heard.windows.append(" ".join(kept))
    heard.words += [(word, begin + first, begin + last) for word, first, last in window.words]
    heard.tokens += window.tokens + 1
    heard.log_probability += window.log_probability * (window.tokens + 1)
