"""Arithmetic on mono PCM: noise at a ratio, another length, another voice, splices. Knows no words and no scorers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import soxr
from numpy.typing import NDArray

SAMPLE_RATE = 24_000
FADE = 240
"""Samples of a cross-fade at a splice, 10 ms."""

WINDOW, REACH = 960, 240
"""Of `stretched`: samples of a window (40 ms), and how far it may be moved to fit (10 ms)."""

Pcm = NDArray[np.float32]


def joined(pieces: Sequence[Pcm]) -> Pcm:
    """Pieces of at least 10 ms one after another, cross-faded: each joint makes the whole `FADE` samples shorter."""
    whole = pieces[0]
    rise = np.linspace(0.0, 1.0, FADE, dtype=np.float32)
    for piece in pieces[1:]:
        seam = whole[-FADE:] * (1.0 - rise) + piece[:FADE] * rise
        whole = np.concatenate([whole[:-FADE], seam, piece[FADE:]])
    return whole


def rms(pcm: Pcm) -> float:
    """Root mean square of all samples."""
    return float(np.sqrt(np.mean(np.square(pcm, dtype=np.float64))))


def with_noise(pcm: Pcm, noise: Pcm, ratio_db: float) -> Pcm:
    """`noise` (at least as long) is added so that the energy of `pcm` is `ratio_db` above its own."""
    added = noise[: len(pcm)]
    gain = rms(pcm) / rms(added) * 10 ** (-ratio_db / 20)
    return (pcm + np.float32(gain) * added).astype(np.float32)


def clipped(pcm: Pcm, share: float) -> Pcm:
    """The loudest `share` of the samples are cut off, and the whole is as loud as before."""
    limit = float(np.quantile(np.abs(pcm), 1.0 - share))
    flat = np.clip(pcm, -limit, limit)
    return (flat * np.float32(rms(pcm) / rms(flat))).astype(np.float32)


def with_clicks(pcm: Pcm, a_second: float) -> Pcm:
    """Clicks of 0.5 ms, as loud as the loudest sample, at regular distances."""
    result = pcm.copy()
    width, peak = SAMPLE_RATE // 2000, float(np.abs(pcm).max())
    for start in range(width, len(pcm) - width, round(SAMPLE_RATE / a_second)):
        result[start : start + width] += peak
    return result


def band_limited(pcm: Pcm, hertz: int) -> Pcm:
    """Without what is above `hertz`, as after a telephone; of the same length."""
    narrow: Pcm = soxr.resample(soxr.resample(pcm, SAMPLE_RATE, 2 * hertz), 2 * hertz, SAMPLE_RATE).astype(np.float32)
    return np.pad(narrow, (0, max(0, len(pcm) - len(narrow))))[: len(pcm)]


def stretched(pcm: Pcm, factor: float) -> Pcm:
    """`factor` times as long at the same pitch: overlapping windows, each moved to where it fits the one before best.

    WSOLA, Verhelst and Roelands (1993).
    """
    hop = WINDOW // 2
    window = np.hanning(WINDOW + 1)[:-1]
    padded = np.concatenate([np.zeros(REACH), pcm, np.zeros(2 * WINDOW + 2 * REACH)]).astype(np.float64)
    length = round(len(pcm) * factor)
    result = np.zeros(length + 2 * WINDOW)
    start = REACH
    for place in range(0, length + hop, hop):
        result[place : place + WINDOW] += window * padded[start : start + WINDOW]
        follows = padded[start + hop : start + hop + WINDOW]
        wanted = min(REACH + round((place + hop) / factor), len(padded) - WINDOW - REACH)
        around = padded[wanted - REACH : wanted + REACH + WINDOW]
        start = wanted - REACH + int(np.correlate(around, follows, "valid").argmax())
        if start + hop + WINDOW > len(padded):
            break
    return result[:length].astype(np.float32)


def other_voice(pcm: Pcm, factor: float) -> Pcm:
    """Pitch and formants times `factor`, at the same pace: the voice of a throat of another length."""
    moved: Pcm = soxr.resample(pcm, SAMPLE_RATE * factor, SAMPLE_RATE).astype(np.float32)
    kept = stretched(moved, len(pcm) / len(moved))
    return np.pad(kept, (0, max(0, len(pcm) - len(kept))))[: len(pcm)]
