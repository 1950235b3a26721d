"""The spectral grid that the built-in voice speaks in: log amplitudes in bands spaced evenly on the mel scale.

Shared by the synthesiser (bands to bins) and by the training recipe (bins to bands). It does not know what a band's
content means, harmonic or noise; both use the same spacing with different counts.
"""

import torch
from torch import Tensor

SAMPLE_RATE = 24_000
HOP = 240  # samples of one analysis hop, 10 ms
HOPS_PER_FRAME = 8
FRAME = HOP * HOPS_PER_FRAME
FFT = 960
HARMONIC_BANDS = 64
NOISE_BANDS = 40
FLOOR = -12.0  # natural log of amplitude; what the teacher's silences lie at
CEILING = 1.5


def band_frequencies(bands: int) -> Tensor:
    """Centres in Hz, float64 `[bands]`, from 0 to the Nyquist frequency, even in mel: 2595 log10(1 + f / 700)."""
    top = 2595.0 * torch.log10(torch.tensor(1.0 + SAMPLE_RATE / 2 / 700.0, dtype=torch.float64))
    mel = torch.linspace(0.0, 1.0, bands, dtype=torch.float64) * top
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def interpolation(bands: int, frequencies: Tensor) -> Tensor:
    """Linear interpolation from bands to `frequencies` (Hz, `[F]`): float32 `[bands, F]`, columns sum to 1."""
    centres = band_frequencies(bands)
    frequencies = frequencies.to(torch.float64)
    left = (torch.searchsorted(centres, frequencies, right=True) - 1).clamp(0, bands - 2)
    share = ((frequencies - centres[left]) / (centres[left + 1] - centres[left])).clamp(0.0, 1.0)
    weights = torch.zeros(bands, len(frequencies), dtype=torch.float64)
    columns = torch.arange(len(frequencies))
    weights[left, columns] = 1.0 - share
    weights[left + 1, columns] += share
    return weights.to(torch.float32)


def bin_frequencies(fft: int) -> Tensor:
    """Frequencies in Hz of the `fft // 2 + 1` bins of a real transform of `fft` samples."""
    return torch.arange(fft // 2 + 1, dtype=torch.float64) * SAMPLE_RATE / fft
