"""Prompts of the built-in voice: an English text becomes rows of symbol ids, both sides of guidance.

It knows how long a text the voice was trained on, and how long a reading can get. It does not know the network.
"""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from codec.builtin.phonemes import NothingToSayError, phonemize, sentences
from engine.moss.config import MossConfig
from engine.moss.prompt import Prompt
from search.request import SpeechRequest

LONGEST = 180
"""Symbols of a text that the voice can hold: its training has hardly any longer one (the longest has 184)."""

# Of 26,000 training utterances not one takes more than 1.2 frames a symbol and 3 frames.
_FRAMES_PER_SYMBOL = 1.2
_SPARE_FRAMES = 15

_UNSUPPORTED = ("instruction", "voice", "reference")
_CLAUSE_END = re.compile(r"(?<=[,;:—])\s+")
_SPACE = re.compile(r"\s+")


class BuiltinPrompt:
    """The prompt builder of the built-in voice, for networks with its text ids."""

    def __init__(self, config: MossConfig) -> None:
        self._config = config

    def build(self, request: SpeechRequest) -> Prompt:
        """Rows int64 `[L, 1 + q]`; the unconditional side is the same frame around no text at all."""
        symbols, ids = self._symbols(request), self._config.ids
        return Prompt(
            conditional=self._rows([ids.im_start, *symbols, ids.im_end, ids.audio_start]),
            unconditional=self._rows([ids.im_start, ids.im_end, ids.audio_start]),
        )

    def budget(self, request: SpeechRequest) -> int:
        """Frames that a sane reading of the text can take."""
        return math.ceil(_FRAMES_PER_SYMBOL * len(self._symbols(request))) + _SPARE_FRAMES

    def _symbols(self, request: SpeechRequest) -> tuple[int, ...]:
        for name in _UNSUPPORTED:
            if getattr(request, name) is not None:
                raise ValueError(f"{name}: the built-in voice has no use for it; leave it out")
        if request.language not in (None, "English"):
            raise ValueError(f"language: {request.language!r} is not spoken here; the built-in voice speaks 'English'")
        symbols = phonemize(request.text).ids
        if len(symbols) > LONGEST:
            raise ValueError(
                f"text: {request.text[:40]!r}... has {len(symbols)} symbols, the built-in voice holds {LONGEST}; "
                "split it (engine.builtin.text.split_sentences does)"
            )
        return symbols

    def _rows(self, text_ids: list[int]) -> Tensor:
        rows = torch.full((len(text_ids), 1 + self._config.books), self._config.audio_pad)
        rows[:, 0] = torch.tensor(text_ids)
        return rows


def split_sentences(text: str) -> list[str]:
    """A text in pieces that the built-in voice can hold, in order; pieces without a word are left out.

    Pieces are sentences; a sentence that is too long is cut at a clause near its middle, or else between words.

    Raises:
        ValueError: a word is not in Latin letters, or is too long by itself.
    """
    return [piece for sentence in sentences(text) for piece in _fitting(sentence)]


def _fitting(text: str) -> list[str]:
    try:
        length = len(phonemize(text).ids)
    except NothingToSayError:
        return []
    if length <= LONGEST:
        return [text]
    cuts = list(_CLAUSE_END.finditer(text)) or list(_SPACE.finditer(text.strip()))
    if not cuts:
        raise ValueError(
            f"text: {text[:40]!r}... is a single word of {length} symbols; the built-in voice holds {LONGEST}"
        )
    middle = min(cuts, key=lambda cut: abs(cut.start() - len(text) / 2))
    return _fitting(text[: middle.start()]) + _fitting(text[middle.end() :])
