"""What a waveform shows without any model: its length, pauses, clipping and seams. Knows nothing of texts.

All of these are of mono PCM, float32 [samples], full scale 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Waveform = NDArray[np.float32]
WINDOW_SECONDS = 0.02
PAUSE_SECONDS = 0.25  # quiet for so long inside the speech is a pause
_QUIET = 10.0 ** (-40 / 20)  # of the loudest window
_SILENT = 1e-4  # no window of speech is quieter
_FULL_SCALE = 32766 / 32767


def measures(audio: Waveform, sample_rate: int, seams: Sequence[int]) -> dict[str, float]:
    """All figures of a take. `seams` are samples where one commit ends and the next begins.

    duration, speech_seconds (from the first window that is not quiet to the last), pause_seconds, longest_pause,
    clipped_samples, seam_jump (the largest step across a seam, in the RMS of the take; NaN without seams).
    """
    loud = _loud(audio, sample_rate)
    speech = np.flatnonzero(loud)
    inside = loud[speech[0] : speech[-1] + 1] if len(speech) else loud[:0]
    runs = [run * WINDOW_SECONDS for run in _quiet_runs(inside)]
    pauses = [run for run in runs if run >= PAUSE_SECONDS]
    return {
        "duration": len(audio) / sample_rate,
        "speech_seconds": len(inside) * WINDOW_SECONDS,
        "pause_seconds": float(sum(pauses)),
        "longest_pause": float(max(pauses, default=0.0)),
        "clipped_samples": float((np.abs(audio) >= _FULL_SCALE).sum()),
        "seam_jump": seam_jump(audio, seams),
    }


def seam_jump(audio: Waveform, seams: Sequence[int]) -> float:
    """The largest difference of neighbouring samples across a seam, over the RMS of the whole; NaN without seams."""
    jumps = [abs(float(audio[seam]) - float(audio[seam - 1])) for seam in seams if 0 < seam < len(audio)]
    level = float(np.sqrt(np.mean(np.square(audio, dtype=np.float64)))) if len(audio) else 0.0
    return max(jumps) / level if jumps and level > 0.0 else float("nan")


def _loud(audio: Waveform, sample_rate: int) -> NDArray[np.bool_]:
    """Of every whole window, whether it is not quiet."""
    size = max(1, round(WINDOW_SECONDS * sample_rate))
    windows = audio[: len(audio) // size * size].reshape(-1, size).astype(np.float64)
    level = np.sqrt(np.square(windows).mean(1))
    loud: NDArray[np.bool_] = level > max(_SILENT, _QUIET * float(level.max(initial=0.0)))
    return loud


def _quiet_runs(loud: NDArray[np.bool_]) -> list[int]:
    edges = np.flatnonzero(np.diff(np.concatenate([[True], loud, [True]]).astype(np.int8)))
    return [int(last - first) for first, last in zip(edges[::2], edges[1::2], strict=True)]
