"""What a search leaves behind: commits, step records, results, files. Knows nothing about how rows were chosen."""

from __future__ import annotations

import io
import json
import math
import wave
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from search.config import SearchConfig
from search.request import SpeechRequest

Status = Literal["complete", "hit_frame_limit", "cancelled", "failed"]
StepRecord = dict[str, Any]
"""One selection, JSON-ready; the field names are those that existing research scripts read (see docs/design.md)."""


@dataclass(frozen=True)
class Commit:
    """A stretch of audio that is final.

    Attributes:
        segment: float32 [samples].
        start_frame, frames: where it lies in the utterance, and how long it is.
        step: number of the selection that committed it, from 1.
        row: the row whose audio it is.
        wall_seconds: since the search began.
        request: what is being spoken.
        index: place of that request in the batch.
        record: the record of that selection.
    """

    segment: NDArray[np.float32]
    start_frame: int
    frames: int
    step: int
    row: int
    wall_seconds: float
    request: SpeechRequest
    index: int
    record: StepRecord


@dataclass(frozen=True)
class Candidates:
    """All rows of one request at one selection, for whoever wants to hear the losers.

    Attributes:
        index: place of the request in the batch.
        record: the step's record; its `parents` names the row here that each row of the next step continues.
        start_frame: first frame of `pcm` and `frames`, the first that was not committed before this selection.
        frames: [N, T, q] with padding behind each row's length.
        lengths: frames of each row.
        pcm: float32 [N, T * hop].
    """

    index: int
    record: StepRecord
    start_frame: int
    frames: Tensor
    lengths: list[int]
    pcm: Tensor


@dataclass(frozen=True)
class SearchResult:
    """A spoken utterance and how it came about.

    Attributes:
        audio: float32 [samples], exactly the committed segments in order.
        sample_rate: in Hz.
        frames: [T, q] codes (or [T, d] latents) of that audio.
        status: "complete"; "hit_frame_limit" when the winner had not said that it was done; "cancelled" by the caller;
            "failed" by an error (the audio is what was committed before).
        steps: one record a selection.
        performance: costs and settings, with the field names of the research scripts.
        config, request: what was asked for.
    """

    audio: NDArray[np.float32]
    sample_rate: int
    frames: Tensor
    status: Status
    steps: list[StepRecord]
    performance: dict[str, Any]
    config: SearchConfig
    request: SpeechRequest

    @property
    def seconds(self) -> float:
        """Length of the audio."""
        return len(self.audio) / self.sample_rate

    def save(self, folder: str | Path, name: str = "speech") -> Path:
        """Write `name.wav` (16-bit) and `name.json` (everything else) into `folder`; returns the path of the WAV."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{name}.wav"
        write_wav(path, self.audio, self.sample_rate)
        (place / f"{name}.json").write_text(json.dumps(self.summary(), indent=1, ensure_ascii=False) + "\n", "utf-8")
        return path

    def summary(self) -> dict[str, Any]:
        """Everything but the audio, JSON-ready; numbers that JSON cannot hold (NaN, infinities) become null."""
        request = self.request
        fields: dict[str, Any] = {
            "status": self.status,
            "sample_rate": self.sample_rate,
            "seconds": self.seconds,
            "request": {
                "text": request.text,
                "id": request.id,
                "language": request.language,
                "instruction": request.instruction,
                "voice": request.voice,
            },
            "config": asdict(self.config),
            "performance": self.performance,
            "steps": self.steps,
            "frames": self.frames.tolist(),
        }
        plain: dict[str, Any] = json_ready(fields)
        return plain


def json_ready(value: Any) -> Any:
    """The value with NaN and infinities replaced by None, at any depth."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: json_ready(item) for key, item in value.items()}
        case list() | tuple():
            return [json_ready(item) for item in value]
        case _:
            return value


def write_wav(path: str | Path, audio: NDArray[np.float32], sample_rate: int) -> None:
    """16-bit mono WAV; samples beyond full scale are clipped."""
    Path(path).write_bytes(wav_bytes(audio, sample_rate))


def wav_bytes(audio: NDArray[np.float32], sample_rate: int) -> bytes:
    """What `write_wav` writes."""
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(pcm16(audio))
    return held.getvalue()


def pcm16(audio: NDArray[np.float32]) -> bytes:
    """Little-endian 16-bit samples."""
    return (np.clip(audio, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes()


def seconds_of(frames: int, frame_rate: Fraction) -> float:
    """Length of some frames."""
    return float(frames / frame_rate)
