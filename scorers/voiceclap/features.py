"""Log-mel features as Whisper has them, but with the mel filters of VoiceCLAP's training. Knows no network.

Formulas: `openai/whisper` audio.py (window 400, hop 160, periodic Hann, centred frames with reflection, power of all
frames but the last, log10, floor 8 below the maximum, `(x + 4) / 4`). The filters that VoiceCLAP's training code ships
are triangles of unit area on the HTK mel scale, not on Slaney's, which Whisper itself uses.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

SAMPLE_RATE = 16_000
WINDOW, HOP = 400, 160
BINS = WINDOW // 2 + 1
_POWER_FLOOR, _RANGE = 1e-10, 8.0

Scale = Literal["htk", "slaney"]
SCALES: tuple[Scale, Scale] = ("htk", "slaney")


def log_power(waves: Tensor, filters: Tensor) -> Tensor:
    """log10 of the mel power, at least -10: float32 [B, S] at 16 kHz, filters [M, 201] -> [B, M, S // 160]."""
    window = torch.hann_window(WINDOW, device=waves.device)
    spectrum = torch.stft(waves, WINDOW, HOP, window=window, center=True, pad_mode="reflect", return_complex=True)
    power = spectrum[..., :-1].abs().square()
    return (filters @ power).clamp(min=_POWER_FLOOR).log10()


def floored(power: Tensor, maximum: Tensor) -> Tensor:
    """Features from `log_power`: nothing lies more than 8 below `maximum`, which broadcasts over [B, M, T]."""
    return (torch.maximum(power, maximum - _RANGE) + 4.0) / 4.0


def log_mel(waves: Tensor, filters: Tensor) -> Tensor:
    """Features [B, M, T] of waves [B, S], each clip with the floor that its own maximum gives it.

    The training code takes the maximum of the whole batch, which lets a loud clip change its neighbours.
    """
    power = log_power(waves, filters)
    return floored(power, power.amax((-2, -1), keepdim=True))


def fitted(wave: Tensor, samples: int) -> Tensor:
    """A wave [S] cut to, or padded with zeros to, so many samples."""
    return F.pad(wave[:samples], (0, max(0, samples - len(wave))))


def mel_filters(scale: Scale, bands: int) -> Tensor:
    """Triangular filters of unit area from 0 to 8 kHz, float32 [bands, 201].

    HTK: `2595 log10(1 + f / 700)` mels. Slaney's Auditory Toolbox (1998): 200/3 Hz a mel up to 1 kHz, above it 27 mels
    for every factor 6.4.
    """
    top = SAMPLE_RATE / 2
    if scale == "htk":
        mels = torch.linspace(0.0, 2595.0 * math.log10(1.0 + top / 700.0), bands + 2, dtype=torch.float64)
        edges = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    else:
        knee, step = 1000.0, math.log(6.4) / 27.0
        mels = torch.linspace(0.0, 15.0 + math.log(top / knee) / step, bands + 2, dtype=torch.float64)
        edges = torch.where(mels < 15.0, mels * 200.0 / 3.0, knee * torch.exp(step * (mels - 15.0)))
    bins = torch.arange(BINS, dtype=torch.float64) * SAMPLE_RATE / WINDOW
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    triangles = torch.minimum((bins - left) / (centre - left), (right - bins) / (right - centre)).clamp(min=0.0)
    return (triangles * (2.0 / (right - left))).to(torch.float32)


def scale_of(filters: Tensor) -> Scale | None:
    """The mel scale that stored filters [M, 201] were made on, as far as bfloat16 can tell; None for another one."""
    same = (scale for scale in SCALES if torch.allclose(filters, mel_filters(scale, len(filters)), rtol=0.0, atol=2e-4))
    return next(same, None)
