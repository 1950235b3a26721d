"""Requests as MOSS prompts: text, language and instruction go into the published template, a recording before them.

It knows how long a reading can get. It does not know the network, nor how a recording becomes codes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from engine.moss.config import MossConfig
from engine.moss.languages import language_name
from engine.moss.packing import RowLayout, Script, Tokenize, pack
from engine.moss.prompt import Prompt, check_rows
from engine.moss.references import Recording
from search.request import SpeechRequest

# What OpenMOSS publishes for English and for Chinese, whose characters are whole words or syllables.
_FRAMES_PER_LETTER, _FRAMES_PER_IDEOGRAM = 0.867, 3.098
_FRAMES_PER_SECOND = 12.5
_SLACK = 2.2  # LAION's factor between the expected length and the longest one allowed
_SPARE_FRAMES = 25

_IDEOGRAM = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_PAUSE = re.compile(r"\[pause\s+(\d+(?:\.\d+)?)\s*s\]", re.IGNORECASE)


class MossPrompt:
    """The prompt builder of the published checkpoints. Stage directions stay in the text: these voices act them.

    Args:
        tokenize: of the checkpoint's own tokenizer.
        encode: turns a recording into codes int64 `[T, q]`; a recording is encoded alone, and in float32.
    """

    def __init__(self, config: MossConfig, tokenize: Tokenize, encode: Callable[[Recording], Tensor]) -> None:
        self._config, self._layout = config, RowLayout.of(config)
        self._tokenize, self._encode = tokenize, encode

    def build(self, request: SpeechRequest) -> Prompt:
        """Rows int64 `[L, 1 + q]`; the unconditional side has the same words and voice, and no instruction."""
        if request.voice is not None:
            raise ValueError("voice: MOSS has no named voices; give a reference recording")
        references = [] if request.reference is None else [self._encode(Recording.of(request.reference))]
        script = Script(text=request.text, instruction=request.instruction, language=language_name(request.language))
        sides = [
            pack(side, self._tokenize, self._layout, references=references)
            for side in (script, replace(script, instruction=None))
        ]
        for rows in sides:
            check_rows("text", rows, self._config)
        return Prompt(*sides)

    def budget(self, request: SpeechRequest) -> int:
        """Frames that a sane reading of the text can take; a pause that it asks for is counted as it is."""
        pauses = sum(float(seconds) for seconds in _PAUSE.findall(request.text))
        words = _PAUSE.sub("", request.text)
        ideograms = len(_IDEOGRAM.findall(words))
        expected = _FRAMES_PER_IDEOGRAM * ideograms + _FRAMES_PER_LETTER * (len(words) - ideograms)
        return math.ceil(_SLACK * expected + _FRAMES_PER_SECOND * pauses) + _SPARE_FRAMES
