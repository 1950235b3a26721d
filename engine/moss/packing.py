"""The rows that a MOSS checkpoint reads before it speaks: the published template around a text, references and fields.

The pieces are turned into ids one by one: joined first, they would merge into other tokens at their seams. It does not
know the tokenizer, nor how audio becomes codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.moss.config import MossConfig, SpecialIds

Tokenize = Callable[[str], list[int]]
"""A text to its token ids, without special tokens around them."""

_NOTHING = "None"


@dataclass(frozen=True)
class Script:
    """What is to be read, and every field of the template; an empty or blank field is left open.

    Attributes:
        text: word for word what is to be said; never stripped. A continuation has the words already spoken in front.
        language: full English name.
        tokens: length in frames.
    """

    text: str
    instruction: str | None = None
    tokens: int | None = None
    quality: str | None = None
    sound_event: str | None = None
    ambient_sound: str | None = None
    language: str | None = None


@dataclass(frozen=True)
class RowLayout:
    """Of what the rows `[L, 1 + q]` of a checkpoint are made: its text ids, q codebooks, and their pad code."""

    ids: SpecialIds
    books: int
    audio_pad: int

    @classmethod
    def of(cls, config: MossConfig) -> RowLayout:
        return cls(config.ids, config.books, config.audio_pad)

    def text_rows(self, ids: Sequence[int]) -> Tensor:
        """Text ids in the first column, pad codes in the others: int64 `[L, 1 + q]`."""
        rows = torch.full((len(ids), 1 + self.books), self.audio_pad)
        rows[:, 0] = torch.tensor(ids, dtype=torch.int64)
        return rows

    def audio_rows(self, slot: int, codes: Tensor) -> Tensor:
        """Codes int64 `[T, q]` behind a slot id: `[T, 1 + q]`."""
        if codes.ndim != 2 or codes.shape[1] != self.books:
            raise ValueError(f"codes: {list(codes.shape)} is not [T, {self.books}], the codebooks of this checkpoint")
        return torch.cat([torch.full((len(codes), 1), slot), codes.cpu()], 1)


def pack(
    script: Script,
    tokenize: Tokenize,
    layout: RowLayout,
    *,
    references: Sequence[Tensor] = (),
    spoken: Tensor | None = None,
) -> Tensor:
    """Prompt rows int64 `[L, 1 + q]`, up to where the next row is the first new frame.

    Args:
        references: codes int64 `[T, q]` of voices to imitate.
        spoken: codes int64 `[T, q]` of the beginning, to be continued; the template has no references then.

    Raises:
        ValueError: codes have another number of books, or both references and a beginning are given.
    """
    if spoken is not None and len(references):
        raise ValueError("references: a continuation has none; what was spoken is the voice")
    ids = layout.ids
    parts = [layout.text_rows([ids.im_start, *tokenize("user\n"), *tokenize("<user_inst>\n- Reference(s):\n")])]
    for codes in references:
        parts += [
            layout.text_rows([ids.audio_start]),
            layout.audio_rows(ids.user_slot, codes),
            layout.text_rows([ids.audio_end]),
        ]
    text = [] if len(references) else tokenize(_NOTHING)
    text += [*tokenize(_fields(script)), *tokenize(script.text)]
    text += [*tokenize("\n</user_inst>"), ids.im_end, *tokenize("\n"), ids.im_start, *tokenize("assistant\n")]
    parts.append(layout.text_rows([*text, ids.audio_start]))
    if spoken is not None:
        parts.append(layout.audio_rows(ids.assistant_slot, spoken))
    return torch.cat(parts)


def _fields(script: Script) -> str:
    values = {
        "Instruction": script.instruction,
        "Tokens": script.tokens,
        "Quality": script.quality,
        "Sound Event": script.sound_event,
        "Ambient Sound": script.ambient_sound,
        "Language": script.language,
    }
    filled = {name: "" if value is None else str(value).strip() for name, value in values.items()}
    return "".join(f"\n- {name}:\n{value or _NOTHING}" for name, value in filled.items()) + "\n- Text:\n"
