"""What needs no recogniser: is there anything like speech in a clip, does it end in sound, where can it be cut.

Speech is told from noise by how its spectrum moves: from one sound to the next whole bands come and go, while the bands
of hum, hiss and breath rise and fall together, however loud. That holds for whispered speech too. Knows no words; a
vowel that is held for ever is noise to it.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
HOP, WINDOW = 320, 640  # 20 and 40 ms
SILENT_DB = -60.0
"""Level of the loudest 40 ms below which nothing is worth hearing, relative to full scale."""

RANGE_DB = 30.0
"""How far below the loudest frame a frame may be and still count as sound."""

STEADY_DB = 2.5
"""Least movement of the spectrum. Measured, mean over bands of the deviation over time: white, pink and breath-like
noise of 0.8 to 12 s at any level at most 1.9; the built-in voice at least 2.9 after 0.3 s and 5.5 after 0.5 s."""

_EDGES_HZ = (100, 250, 450, 700, 1000, 1400, 2000, 2800, 4000, 5600, 7900)
_QUIET = 1e-9  # relative power, so that digital silence has a logarithm


def silence_in(pcm: NDArray[np.float32]) -> str:
    """Why a clip (float32 [S] at 16 kHz) cannot be speech: "too short", "silence" or "steady noise"; "" if it can."""
    power = _power(pcm)
    if len(power) < 3:
        return "too short"
    level = _level(power)
    if level.max() < SILENT_DB:
        return "silence"
    loud = power[level > level.max() - RANGE_DB]
    frequencies = np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE)
    bands = [
        loud[:, (frequencies >= low) & (frequencies < high)].mean(1) for low, high in itertools.pairwise(_EDGES_HZ)
    ]
    shape = 10 * np.log10(np.stack(bands, 1) + _QUIET * loud.mean())
    movement = (shape - shape.mean(1, keepdims=True)).std(0).mean()
    return "" if movement >= STEADY_DB else "steady noise"


def ends_in_sound(pcm: NDArray[np.float32]) -> bool:
    """Whether the last 120 ms of a clip (float32 [S] at 16 kHz) are more than the pause between two words."""
    level = _level(_power(pcm))
    return bool(len(level) and level[-5:].max() > level.max() - RANGE_DB)


def quietest(pcm: NDArray[np.float32], first: int, last: int) -> int:
    """The sample between `first` and `last` around which 200 ms are the quietest, on a grid of 20 ms."""
    energy = np.square(pcm[first:last], dtype=np.float64)
    energy = energy[: len(energy) // HOP * HOP].reshape(-1, HOP).sum(1)
    smooth = np.convolve(energy, np.ones(10), "valid")
    return first + (int(smooth.argmin()) + 5) * HOP


def _power(pcm: NDArray[np.float32]) -> NDArray[np.float64]:
    """Power spectra float64 [frames, WINDOW // 2 + 1] of 40 ms frames, in parts of a full-scale sine's peak power."""
    if len(pcm) < WINDOW:
        return np.zeros((0, WINDOW // 2 + 1))
    frames = np.lib.stride_tricks.sliding_window_view(pcm, WINDOW)[::HOP]
    window = np.hanning(WINDOW)
    spectra = np.fft.rfft(frames * window)
    power: NDArray[np.float64] = np.abs(spectra) ** 2 * (2 / (WINDOW * np.square(window).sum()))
    return power


def _level(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean square of each frame in dB, float64 [frames]."""
    level: NDArray[np.float64] = 10 * np.log10(power.sum(1) + 1e-12)
    return level
