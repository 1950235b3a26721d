"""Log-mel features of a growing waveform, every row at its own length. Knows nothing of what is said.

A step is 20 ms: two hops of 10 ms, each the log magnitude in 80 mel bands of a Hann window of 1,024 samples around the
hop's first sample. A step exists once its last sample has been heard, 26 ms after its middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SAMPLE_RATE = 24_000
HOP = 240
MELS = 80
HOPS_PER_STEP = 2
STEP = HOP * HOPS_PER_STEP
WINDOW = 1024
_BEFORE = WINDOW // 2  # a window starts this far before its hop
_STEP_SPAN = HOP + WINDOW - _BEFORE  # samples after a step's start that its second window still needs
_KEPT = _STEP_SPAN - 1 + _BEFORE  # the oldest sample that an incomplete step can need
_MAGNITUDE_FLOOR = 1e-5


@dataclass
class Ear:
    """What must be remembered: `tail` float32 [R, samples], the newest last, and `heard` int64 [R], samples so far."""

    tail: Tensor
    heard: Tensor


def open_ear(rows: int, device: torch.device) -> Ear:
    """Nothing heard yet: silence before the first sample."""
    return Ear(torch.zeros(rows, _KEPT, device=device), torch.zeros(rows, dtype=torch.int64, device=device))


def steps_after(samples: Tensor) -> Tensor:
    """Complete steps once so many samples have been heard; both int64 [R]."""
    return ((samples - _STEP_SPAN).div(STEP, rounding_mode="floor") + 1).clamp(min=0)


def listen(ear: Ear, pcm: Tensor, lengths: Tensor, mel: Tensor, window: Tensor, silence: int, least: int) -> StepBatch:
    """Features of the new samples, then of virtual silence after them; `ear` moves on by the real samples only.

    Args:
        pcm: float32 [R, S]; what lies beyond `lengths` (int64 [R]) is not read.
        mel: float32 [513, 80], from `mel_filters`. window: float32 [1024].
        silence: samples of silence to pretend after every row's audio.
        least: the batch has at least so many steps on axis 1.
    """
    rows, width = pcm.shape
    device = pcm.device
    real = torch.where(torch.arange(width, device=device) < lengths[:, None], pcm, 0.0)
    before, after = steps_after(ear.heard), steps_after(ear.heard + lengths)
    imagined = steps_after(ear.heard + lengths + silence) - before
    steps = max(least, int(imagined.max()))
    room = _KEPT + (steps + 2) * STEP + WINDOW
    line = F.pad(torch.cat([ear.tail, real], 1), (0, max(0, room - _KEPT - width)))
    first = _KEPT - ear.heard + before * STEP - _BEFORE  # where the first new step's first window starts
    span = WINDOW + (steps * HOPS_PER_STEP - 1) * HOP
    heard = line.gather(1, first[:, None] + torch.arange(span, device=device))
    windows = heard.unfold(1, WINDOW, HOP)  # [R, steps * 2, 1024]
    newest = line.gather(1, lengths[:, None] + torch.arange(_KEPT, device=device))
    ear.tail, ear.heard = newest, ear.heard + lengths
    features = log_mel(windows * window, mel).view(rows, steps, HOPS_PER_STEP * MELS)
    return StepBatch(features, after - before, imagined)


@dataclass(frozen=True)
class StepBatch:
    """`features` float32 [R, T, 160]; a row's first `real` steps are audio, those up to `imagined` silence."""

    features: Tensor
    real: Tensor
    imagined: Tensor


def log_mel(windows: Tensor, mel: Tensor) -> Tensor:
    """Natural log of the mel magnitudes of weighted windows [..., 1024]: float32 [..., 80]."""
    magnitudes: Tensor = torch.fft.rfft(windows).abs() @ mel
    return (magnitudes + _MAGNITUDE_FLOOR).log()


def hann() -> Tensor:
    """Periodic Hann window, float32 [1024]."""
    return torch.hann_window(WINDOW, periodic=True)


def mel_filters() -> Tensor:
    """Triangular filters of unit area on Slaney's mel scale (Auditory Toolbox, 1998), 0 to 12 kHz: float32 [513, 80].

    The scale is linear below 1 kHz (200/3 Hz a mel) and logarithmic above (27 mels from 1 to 6.4 kHz).
    """
    knee, per_mel, step = 1000.0, 200.0 / 3.0, torch.log(torch.tensor(6.4, dtype=torch.float64)) / 27.0
    top = knee / per_mel + torch.log(torch.tensor(SAMPLE_RATE / 2 / knee, dtype=torch.float64)) / step
    mels = torch.linspace(0.0, float(top), MELS + 2, dtype=torch.float64)
    edges = torch.where(mels < knee / per_mel, mels * per_mel, knee * torch.exp(step * (mels - knee / per_mel)))
    bins = torch.arange(WINDOW // 2 + 1, dtype=torch.float64) * SAMPLE_RATE / WINDOW
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins[:, None] - left) / (centre - left)
    falling = (right - bins[:, None]) / (right - centre)
    return (torch.minimum(rising, falling).clamp(min=0.0) * (2.0 / (right - left))).to(torch.float32)


def bands_below(mel: Tensor, frequency: float) -> int:
    """How many bands, from the lowest, lie below a frequency in Hz, but for a fifth of their weight at most."""
    bins = torch.arange(mel.shape[0], device=mel.device) * SAMPLE_RATE / WINDOW
    return int((mel[bins > frequency].sum(0) < 0.2 * mel.sum(0)).sum())
