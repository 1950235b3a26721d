"""Makes a recording fit for the encoder, as the models were trained: rate, channels, loudness.

It does not know the encoder, nor what the recording says.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

LOUDNESS = -20.0  # dB, full scale
MOST_GAIN = 3.0  # dB
_MOST_CHANNELS = 8


def prepared(pcm: np.ndarray | Tensor, sample_rate: int, target_rate: int, channels: int) -> Tensor:
    """Float32 [channels, samples] at `target_rate`, at most 3 dB louder or softer than it was.

    Args:
        pcm: [samples] or [channels, samples], full scale at 1. One channel is repeated, those beyond the second are
            left out; for a codec of one channel, two are averaged.

    Raises:
        ValueError: the recording is empty, has another layout, no sensible rate, or holds values that are not finite.
    """
    sound = torch.as_tensor(pcm)
    if sound.ndim not in (1, 2) or not sound.numel() or not sound.is_floating_point():
        raise ValueError(
            f"reference: {sound.dtype} of shape {list(sound.shape)}; floats [samples] or [channels, samples] are needed"
        )
    if sound.ndim == 2 and sound.shape[0] > _MOST_CHANNELS:
        raise ValueError(f"reference: {sound.shape[0]} channels; put channels first, [channels, samples]")
    if sample_rate < 1:
        raise ValueError(f"reference: the sample rate is {sample_rate}; give it in Hz")
    if not bool(sound.isfinite().all()):
        raise ValueError("reference: the recording holds values that are not finite; decode the file again")
    sound = _resampled(sound.detach().cpu().float().reshape(-1, sound.shape[-1]), sample_rate, target_rate)[:2]
    if len(sound) > channels:
        sound = sound.mean(0, keepdim=True)
    sound = sound.expand(channels, -1)
    level = 10.0 * math.log10(float(sound.square().mean()) + 1e-9)
    gain = min(max(LOUDNESS - level, -MOST_GAIN), MOST_GAIN)
    factor: float = 10.0 ** (gain / 20.0)
    return sound * factor


def _resampled(sound: Tensor, rate: int, target: int) -> Tensor:
    if rate == target:
        return sound
    try:
        import soxr
    except ImportError:
        raise ValueError(
            f"reference: {rate} Hz must become {target} Hz, which needs soxr: pip install soxr, or resample it yourself"
        ) from None
    converted = soxr.resample(sound.T.numpy(), rate, target, quality="VHQ")
    return torch.from_numpy(np.ascontiguousarray(converted.T, dtype=np.float32))
