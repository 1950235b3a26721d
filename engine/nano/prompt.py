"""Requests as MOSS-TTS-Nano prompts: the template of the larger voices, of which only text and voice are filled in.

It does not know the network, nor how a recording becomes codes.
"""

from __future__ import annotations

from torch import Tensor

from engine.moss.packing import RowLayout, Script, Tokenize, pack
from engine.moss.prompt import Prompt
from engine.moss.text import MossPrompt
from engine.nano.config import NanoConfig
from search.request import SpeechRequest


class NanoPrompt(MossPrompt):
    """The prompt builder of the published checkpoint: a text, and a recording of the voice that is to say it.

    There is no unconditional side: without an instruction both would be the same.
    """

    def build(self, request: SpeechRequest) -> Prompt:
        """Rows int64 `[L, 1 + q]`; raises `ValueError` for a field that the voice was never trained to read."""
        for field in ("language", "instruction"):
            if getattr(request, field) is not None:
                raise ValueError(f"{field}: MOSS-TTS-Nano has no such field in its prompt; leave it out")
        return Prompt(super().build(request).conditional)


def continuation(config: NanoConfig, tokenize: Tokenize, text: str, *, spoken: str, codes: Tensor) -> Tensor:
    """Rows int64 `[L, 1 + q]` for `SpeechRequest.prompt`: the voice that said `spoken` in `codes` goes on with `text`.

    Texts are joined as they are: give the space between them. `codes` int64 `[T, q]`, as a codec encodes recordings.
    """
    return pack(Script(spoken + text), tokenize, RowLayout.of(config), spoken=codes)
