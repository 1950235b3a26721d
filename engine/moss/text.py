"""Requests as MOSS prompts: text, language and instruction go into the published template, a recording before them.

It does not know the network, nor how a recording becomes codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from engine.moss.config import MossConfig
from engine.moss.languages import language_name
from engine.moss.length import frame_budget
from engine.moss.packing import RowLayout, Script, Tokenize, pack
from engine.moss.prompt import Prompt, check_rows
from engine.moss.references import Recording
from search.request import SpeechRequest


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
        """Frames that a sane reading of the text can take."""
        return frame_budget(request.text)
