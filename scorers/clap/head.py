"""How well a clip sounds like the request's instruction: cosine of two CLAP embeddings.

Knows no network: two towers, of whatever package, put words and sounds into one space. Cosines of one instruction can
be compared with each other; what counts as a good one differs from instruction to instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scorers.clap.waveform import SAMPLE_RATE, SPAN, Waveform, is_silent, spanned
from scorers.heads import Clip, Judgement, Term
from search.request import SpeechRequest

TEXT_TOKENS = 77
"""That CLAP was trained to read; what follows in a longer instruction is cut off."""


class Towers(Protocol):
    """The two networks, in evaluation mode on `device`."""

    device: torch.device

    def tokens(self, text: str) -> int:
        """How many tokens the text has, with the marks at both ends; those beyond `TEXT_TOKENS` are not read."""

    def words(self, text: str) -> Tensor:
        """The text's unit vector, float32 [D] on the CPU."""

    def sounds(self, audio: Waveform) -> Tensor:
        """Unit vectors, float32 [B, D] on the CPU; `audio` is float32 [B, 480000] at 48 kHz."""


@dataclass(frozen=True)
class Query:
    """An instruction: its unit vector, float32 [D], and what a person should know about it."""

    embedding: Tensor
    note: dict[str, Any]


class Style:
    """Compares clips with the instruction of their request, all clips in one batch."""

    name = "clap"
    sample_rate = SAMPLE_RATE
    terms: tuple[Term, ...] = (Term("clap", meaning="cosine of the audio to the instruction, -1 to 1"),)

    def __init__(self, towers: Towers) -> None:
        self._towers = towers
        self.device = towers.device

    @torch.inference_mode()
    def prepare(self, request: SpeechRequest) -> Query | None:
        """The instruction, embedded once; None for a request that has none, whose rows will be NaN."""
        text = (request.instruction or "").strip()
        if not text:
            return None
        count = self._towers.tokens(text)
        cut = {"instruction_cut": f"the first {TEXT_TOKENS} of {count} tokens are compared"}
        return Query(self._towers.words(text), cut if count > TEXT_TOKENS else {})

    @torch.inference_mode()
    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        """Judge every clip that is not silent and has an instruction."""
        reasons = [_obstacle(clip) for clip in clips]
        heard = [spanned(clip.pcm) for clip, reason in zip(clips, reasons, strict=True) if not reason]
        embeddings = iter(self._towers.sounds(np.stack(heard)) if heard else ())
        return [
            Judgement({"clap": float("nan")}, {"not_judged": reason})
            if reason
            else Judgement({"clap": float(next(embeddings) @ clip.prepared.embedding)}, clip.prepared.note)
            for clip, reason in zip(clips, reasons, strict=True)
        ]


def _obstacle(clip: Clip) -> str:
    """Why a clip cannot be judged; empty where it can."""
    if clip.prepared is None:
        return "the request has no instruction"
    return "silent" if is_silent(clip.pcm[-SPAN:]) else ""
