"""What a network reads before it speaks: prompts, who builds them, and the checks that a ready-made one has to pass.

It does not know how text becomes ids: every family of voices brings its own builder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.moss.config import MossConfig
from engine.moss.length import frame_budget
from search.request import SpeechRequest


@dataclass(frozen=True)
class Prompt:
    """What one request makes the network read first: int64 rows `[L, 1 + q]` (text id, then codes).

    `unconditional` is the other side of classifier-free guidance: the same reading without the condition.
    """

    conditional: Tensor
    unconditional: Tensor | None = None


class PromptBuilder(Protocol):
    """Turns a request into prompt rows; raises `ValueError` for a request it cannot read out."""

    def build(self, request: SpeechRequest) -> Prompt:
        """The prompt of a request, both sides where the voice has been trained for guidance."""

    def budget(self, request: SpeechRequest) -> int:
        """Frames that a sane reading of the request's text can take."""


class ReadyPrompts:
    """The builder of an engine without a front end: requests must carry prompt rows."""

    def build(self, request: SpeechRequest) -> Prompt:
        raise ValueError(
            f"text: {request.text!r} cannot be turned into a prompt, this engine has no text front end; "
            "give SpeechRequest.prompt, int64 rows [L, 1 + q]"
        )

    def budget(self, request: SpeechRequest) -> int:
        return frame_budget(request.text)


def ready_prompt(request: SpeechRequest, config: MossConfig) -> Prompt:
    """The rows that a request brings along, checked; `request.prompt` must be there."""
    assert request.prompt is not None
    check_rows("prompt", request.prompt, config)
    if request.unconditional is not None:
        check_rows("unconditional", request.unconditional, config)
    return Prompt(request.prompt, request.unconditional)


def check_rows(field: str, rows: Tensor, config: MossConfig) -> None:
    """Raise `ValueError` naming the field, the column and the value where rows `[L, 1 + q]` do not fit the network."""
    wanted = f"int64 [L, {1 + config.books}] with L at least 1"
    if rows.dtype != torch.int64 or rows.ndim != 2 or rows.shape[1] != 1 + config.books or not len(rows):
        found = f"{str(rows.dtype).removeprefix('torch.')} {list(rows.shape)}"
        raise ValueError(f"{field}: rows are {found}; this engine takes {wanted}")
    _check_range(field, "the text column", rows[:, 0], config.backbone.vocabulary)
    for book, size in enumerate(config.codebook_sizes):
        codes = rows[:, 1 + book]
        _check_range(field, f"codebook {book}", codes[codes != config.audio_pad], size)


def _check_range(field: str, column: str, values: Tensor, size: int) -> None:
    outside = values[(values < 0) | (values >= size)]
    if len(outside):
        raise ValueError(f"{field}: {column} holds {int(outside[0])}; allowed are 0 to {size - 1}")
