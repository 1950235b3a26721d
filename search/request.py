"""What a user asks for: one utterance. Knows nothing about how an engine turns it into a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SpeechRequest:
    """One utterance to speak.

    Only `text` is required. Which of the other fields an engine understands is the engine's affair; it raises
    `ValueError` for a field that it would otherwise ignore in silence.

    Attributes:
        text: what is to be said; not empty.
        id: names the request. It keys the random stream, so two requests with one id and seed share their noise.
        language: full English name, such as "English".
        instruction: how to say it (style, emotion); style scorers compare with it.
        voice: a named voice of the engine.
        reference: audio of the voice to imitate: a path, or `(pcm float32 [samples], sample_rate in Hz)`.
        prompt: ready-made prompt rows, int64 [L, 1 + q], for engines that take them instead of building their own.
        unconditional: the prompt without the condition, same layout; the other side of classifier-free guidance.
    """

    text: str
    id: str | None = None
    language: str | None = None
    instruction: str | None = None
    voice: str | None = None
    reference: str | Path | tuple[np.ndarray, int] | None = None
    prompt: Tensor | None = None
    unconditional: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"text: {self.text!r} is a {type(self.text).__name__}; it must be a string")
        if not self.text.strip():
            raise ValueError(f"text: {self.text!r} has nothing to say; give at least one word")
        for name in ("prompt", "unconditional"):
            rows = getattr(self, name)
            if rows is not None and not isinstance(rows, Tensor):
                raise TypeError(f"{name}: {rows!r} is a {type(rows).__name__}; it must be an int64 tensor [L, 1 + q]")
        if self.id is not None and not isinstance(self.id, str):
            raise TypeError(f"id: {self.id!r} is a {type(self.id).__name__}; it must be a string or None")
