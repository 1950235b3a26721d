"""Audio as CLAP was trained to hear it: ten seconds at 48 kHz. Knows no network.

Shorter audio is repeated whole as often as it fits, then followed by zeros ("repeatpad"). Of longer audio the *last*
ten seconds are heard: the candidates of a search differ at their ends. LAION's code takes a random cut there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 48_000
SPAN = 10 * SAMPLE_RATE
"""Samples that the networks hear, always."""

SILENCE = 1e-3
"""Audio whose loudest sample stays below is silent: -60 dB full scale."""

FULL_SCALE = 32_767.0

Waveform = NDArray[np.float32]


def spanned(pcm: Waveform) -> Waveform:
    """Float32 [480000] of `pcm`, float32 [S] with S at least 1."""
    if len(pcm) >= SPAN:
        return pcm[-SPAN:]
    heard = np.zeros(SPAN, np.float32)
    whole = SPAN // len(pcm) * len(pcm)
    heard[:whole] = np.tile(pcm, SPAN // len(pcm))
    return heard


def sixteen_bit(pcm: Waveform) -> Waveform:
    """`pcm` after a trip through 16-bit integers as in LAION's training: clipped to ±1, rounded toward zero."""
    stored = (np.clip(pcm, -1.0, 1.0) * np.float32(FULL_SCALE)).astype(np.int16)
    back: Waveform = (stored / FULL_SCALE).astype(np.float32)
    return back


def is_silent(pcm: Waveform) -> bool:
    return float(np.abs(pcm).max()) < SILENCE
