"""Whisper in CTranslate2: one encoder pass and one greedy decode for a batch of windows. Knows no clips, no texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens
from numpy.typing import NDArray

from scorers.whisper.decoded import Decoded
from scorers.whisper.guards import token_budget
from scorers.whisper.sound import SAMPLE_RATE

FRAMES_PER_SECOND = 100


class CTranslate2Recogniser:
    """faster-whisper's model and feature extractor, without its `transcribe`."""

    def __init__(self, folder: Path, device: torch.device, compute_type: str, cpu_threads: int) -> None:
        self.name = folder.name
        self._model = WhisperModel(
            str(folder),
            device=device.type,
            device_index=device.index or 0,
            compute_type=compute_type,
            cpu_threads=cpu_threads,
        )
        self.multilingual: bool = self._model.model.is_multilingual
        self._tokenizers: dict[str, Any] = {}

    def decode(self, clips: Sequence[NDArray[np.float32]], seconds: int, language: str, timed: bool) -> list[Decoded]:
        tokenizer = self._tokenizer(language)
        prompt = [*tokenizer.sot_sequence, tokenizer.no_timestamps]
        encoded = self._model.encode(np.stack([self._features(clip, seconds) for clip in clips]))
        found = self._model.model.generate(
            encoded,
            [prompt] * len(clips),
            beam_size=1,
            max_length=len(prompt) + token_budget(seconds),
            suppress_blank=True,
            suppress_tokens=self._suppressed,
            return_scores=True,
            return_no_speech_prob=True,
        )
        durations = [len(clip) / SAMPLE_RATE for clip in clips]
        budgets = [token_budget(duration) for duration in durations]
        ids = [one.sequences_ids[0][:budget] for one, budget in zip(found, budgets, strict=True)]
        timings = self._timed(tokenizer, ids, encoded, durations) if timed else [()] * len(clips)
        return [
            Decoded(
                text=tokenizer.decode(tokens).strip(),
                tokens=len(tokens),
                log_probability=one.scores[0] * len(one.sequences_ids[0]) / (len(one.sequences_ids[0]) + 1),
                no_speech=one.no_speech_prob,
                cut=len(one.sequences_ids[0]) > budget,
                words=words,
            )
            for one, tokens, budget, words in zip(found, ids, budgets, timings, strict=True)
        ]

    def _features(self, clip: NDArray[np.float32], seconds: int) -> NDArray[np.float32]:
        """Log-mel float32 [mels, frames]; silence after the clip is the floor of Whisper's own dynamic range."""
        frames = seconds * FRAMES_PER_SECOND
        silence = min(SAMPLE_RATE // 10, seconds * SAMPLE_RATE - len(clip))
        mel = self._model.feature_extractor(clip, padding=silence)[:, :frames]
        padded: NDArray[np.float32] = np.pad(
            mel, ((0, 0), (0, frames - mel.shape[1])), constant_values=mel.min()
        ).astype(np.float32)
        return padded

    def _timed(
        self, tokenizer: Any, ids: list[list[int]], encoded: Any, durations: list[float]
    ) -> list[tuple[tuple[str, float, float], ...]]:
        frames = [max(1, round(duration * FRAMES_PER_SECOND)) for duration in durations]
        found = self._model.find_alignment(tokenizer, ids, encoded, frames)
        return [
            tuple(
                (one["word"].strip(), min(float(one["start"]), end), min(float(one["end"]), end))
                for one in words
                if any(letter.isalnum() for letter in one["word"])
            )
            for words, end in zip(found, durations, strict=True)
        ]

    def _tokenizer(self, language: str) -> Any:
        if language not in self._tokenizers:
            hub = self._model.hf_tokenizer
            self._tokenizers[language] = Tokenizer(hub, self.multilingual, task="transcribe", language=language)
        return self._tokenizers[language]

    @cached_property
    def _suppressed(self) -> list[int]:
        """Everything that is not said: speaker tags, music, brackets."""
        return list(get_suppressed_tokens(self._tokenizer("en"), [-1]))
