"""Harmonic and noise envelopes of a waveform whose pitch curve is known.

Around every harmonic one complex gain is fitted from the spectrum of a unit pulse train to the spectrum of the speech;
its size is the harmonic amplitude, and the energy well away from the harmonic is the noise. The finished waveform is
measured, not the teacher's own branches: its free-phase branch carries much of the harmonic energy. It does not
estimate pitch: the curve is the teacher's.
"""

from dataclasses import dataclass
from typing import Any

import librosa
import numpy as np
import scipy.fft
from numpy.typing import NDArray

from codec.builtin.spectrum import (
    CEILING,
    FLOOR,
    HARMONIC_BANDS,
    HOP,
    NOISE_BANDS,
    SAMPLE_RATE,
    bin_frequencies,
    interpolation,
)

Array = NDArray[np.float32]
MEL_BANDS = 80
_FFT = 1200
_LOWEST_PITCH = 70.0  # Hz; below it harmonics are too close to be told apart by a 50 ms window
_LOBE = 3.0  # bins; half the main lobe of the Hann window, and a little more
_BINS = _FFT // 2 + 1
_WINDOW = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FFT) / _FFT)).astype(np.float32)
_MEL_WINDOW = np.hanning(1025)[:-1].astype(np.float32)
_MEL = librosa.filters.mel(sr=SAMPLE_RATE, n_fft=1024, n_mels=MEL_BANDS, fmax=SAMPLE_RATE / 2).astype(np.float32)


@dataclass(frozen=True)
class Envelopes:
    """Log amplitudes (natural log): `harmonic` `[T, 64]`, `noise` `[T, 40]`, and `mel` `[T, 80]` for the encoder."""

    harmonic: Array
    noise: Array
    mel: Array


def _projection(bands: int) -> Array:
    """Ridge regression from bins to bands: float32 `[bins, bands]`."""
    grid = interpolation(bands, bin_frequencies(_FFT)).numpy().astype(np.float64)
    solved = np.linalg.solve(grid @ grid.T + 1e-3 * np.eye(bands), grid)
    return np.ascontiguousarray(solved.T.astype(np.float32))


_TO_HARMONIC, _TO_NOISE = _projection(HARMONIC_BANDS), _projection(NOISE_BANDS)


def _frames(signal: Array, centres: NDArray[np.int64], size: int) -> Array:
    padded = np.pad(signal, (size, 2 * size + HOP))
    starts = np.clip(centres, 0, len(signal) + size) + size - size // 2
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, size)[starts])


def _spectrum(signal: Array, centres: NDArray[np.int64]) -> NDArray[np.complex64]:
    windowed = _frames(signal, centres, _FFT) * (_WINDOW / (_FFT / 4))
    return np.asarray(scipy.fft.rfft(windowed, axis=1))


def _range_sums(values: NDArray[Any], first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[Any]:
    """Sums over bins `first..last` (inclusive) of each row: `[T, K]` from `[T, bins]`."""
    total = np.concatenate([np.zeros_like(values[:, :1]), np.cumsum(values, axis=1)], axis=1)
    return np.asarray(np.take_along_axis(total, last + 1, 1) - np.take_along_axis(total, first, 1))


def _voiced(speech: NDArray[np.complex64], pulses: NDArray[np.complex64], pitch: Array) -> tuple[Array, Array]:
    """Log amplitudes per bin, `[T, bins]` each, of the voiced frames given."""
    spacing = (np.maximum(pitch, _LOWEST_PITCH) * _FFT / SAMPLE_RATE)[:, None]
    count = np.floor(590.0 / spacing)
    centre = np.arange(1, int(count.max()) + 1)[None] * spacing

    def bins(edge: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.clip(edge, 0, _BINS - 1).astype(np.int64)

    first, last = bins(np.ceil(centre - spacing / 2)), bins(np.floor(centre + spacing / 2))
    inner_first, inner_last = bins(np.ceil(centre - _LOBE)), bins(np.floor(centre + _LOBE))
    cross = (speech * np.conj(pulses)).astype(np.complex128)
    power = np.abs(speech).astype(np.float64) ** 2
    pulse_power = _range_sums(np.abs(pulses).astype(np.float64) ** 2, first, last) + 1e-9
    gain = np.abs(_range_sums(cross, first, last)) / pulse_power
    total = _range_sums(power, first, last)
    away_count = (last - first) - (inner_last - inner_first)
    away = (total - _range_sums(power, inner_first, inner_last)) / np.maximum(away_count, 1)
    misfit = np.maximum(total - gain**2 * pulse_power, 0) / np.maximum(last - first - 1, 1)
    noise = np.where(away_count > 0, np.maximum(away, 0), misfit)
    position = np.clip(np.arange(_BINS)[None] / spacing - 1, 0, count - 1)
    left = np.minimum(position.astype(np.int64), np.maximum(count.astype(np.int64) - 2, 0))
    share = position - left

    def spread(values: NDArray[np.float64]) -> Array:
        mixed = np.take_along_axis(values, left, 1) * (1 - share) + np.take_along_axis(values, left + 1, 1) * share
        return mixed.astype(np.float32)

    return spread(np.log(gain + 1e-6)), spread(0.5 * np.log(noise + 1e-12))


def envelopes(speech: Array, pulses: Array, pitch: Array, centres: NDArray[np.int64]) -> Envelopes:
    """Envelopes at the sample positions `centres` `[T]`.

    speech, pulses: float32 `[samples]`, the waveform and the unit pulse train that shares its pitch; pitch: Hz `[T]` at
    the centres, 0 where unvoiced. A noise amplitude is the root mean square of a Hann-windowed bin scaled by 4 / 1200.
    """
    spectrum, train = _spectrum(speech, centres), _spectrum(pulses, centres)
    power = np.abs(spectrum) ** 2
    smooth = np.stack([power[:, np.clip(np.arange(_BINS) + shift, 0, _BINS - 1)] for shift in range(-2, 3)]).mean(0)
    harmonic = np.full(power.shape, FLOOR, np.float32)
    noise = (0.5 * np.log(smooth + 1e-12)).astype(np.float32)
    voiced = (pitch > 40.0) & (np.abs(train).max(1) > 1e-3)
    if voiced.any():
        harmonic[voiced], noise[voiced] = _voiced(spectrum[voiced], train[voiced], pitch[voiced])
    mel_frames = _frames(speech, centres, 1024) * _MEL_WINDOW
    mel = np.log(np.abs(scipy.fft.rfft(mel_frames, axis=1)) @ _MEL.T + 1e-5)
    return Envelopes(
        np.clip(harmonic, FLOOR, CEILING) @ _TO_HARMONIC,
        np.clip(noise, FLOOR, CEILING) @ _TO_NOISE,
        mel.astype(np.float32),
    )
