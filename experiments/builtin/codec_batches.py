"""Windows of speech for the codec: how they are drawn, what is asked of the decoder, and how its input is damaged.

Does not know the networks; tensors in, tensors out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from codec.builtin.network import PHONES, PITCHES, DecoderConfig
from codec.builtin.spectrum import HARMONIC_BANDS, HOPS_PER_FRAME, NOISE_BANDS
from experiments.builtin.tokens import Speech

BATCH, WINDOW = 32, 40  # windows, frames


@dataclass
class Batch:
    """One draw of windows: hops on axis 1 of the features, frames on axis 1 of `semantic`."""

    harmonic: Tensor
    noise: Tensor
    log_pitch: Tensor
    voiced: Tensor
    features: Tensor
    semantic: Tensor
    frames: Tensor


def draw(speech: Speech, frames: Tensor) -> Batch:
    """The windows whose frame numbers are int64 [B, T]."""
    hops = (frames[..., None] * HOPS_PER_FRAME + torch.arange(HOPS_PER_FRAME)).flatten(1)
    voiced, log_pitch = speech.voiced[hops].float(), speech.log_pitch[hops].float()
    features = torch.cat([speech.mel[hops].float(), (log_pitch * voiced)[..., None], voiced[..., None]], -1)
    return Batch(
        speech.harmonic[hops].float(),
        speech.noise[hops].float(),
        log_pitch,
        voiced,
        features,
        speech.semantic[frames],
        frames,
    )


def random_frames(speech: Speech) -> Tensor:
    """Windows anywhere in the stream, a quarter of them at the start of an utterance."""
    last = len(speech.semantic) - WINDOW
    first = torch.randint(last, (BATCH,))
    starts = speech.frame_offsets[torch.randint(len(speech.frame_offsets) - 1, (BATCH // 4,))]
    first[: BATCH // 4] = starts.clamp(max=last)
    return first[:, None] + torch.arange(WINDOW)


def losses(out: Tensor, batch: Batch) -> dict[str, Tensor]:
    """L1 errors of log amplitudes and log pitch, squared error of voicing."""
    harmonic, noise = out[..., :HARMONIC_BANDS], out[..., HARMONIC_BANDS : HARMONIC_BANDS + NOISE_BANDS]
    pitch, voicing = out[..., -2], out[..., -1]
    voiced, count = batch.voiced, batch.voiced.sum() + 1.0
    nearby = batch.harmonic[..., torch.linspace(0, HARMONIC_BANDS - 1, NOISE_BANDS).long()]
    masked = torch.where((nearby > batch.noise + 2.0) & (voiced[..., None] > 0), 0.35, 1.0)
    return {
        "harmonic": ((harmonic - batch.harmonic).abs().mean(-1) * voiced).sum() / count,
        "noise": ((noise - batch.noise).abs() * masked).mean(),
        "pitch": ((pitch - batch.log_pitch).abs() * voiced).sum() / count,
        "voicing": ((voicing - voiced) ** 2).mean(),
    }


def total(parts: dict[str, Tensor]) -> Tensor:
    """The training objective."""
    return parts["harmonic"] + parts["noise"] + 10.0 * parts["pitch"] + 2.0 * parts["voicing"]


def damaged(semantic: Tensor, config: DecoderConfig) -> Tensor:
    """Tokens [B, T, 7] with the small errors that a language model's samples have: float where jittered."""
    rows, length, _ = semantic.shape
    phones = semantic[..., :PHONES].flatten(1)
    shift = torch.where(torch.rand(rows, 1) < 0.5, phones.roll(1, 1), phones.roll(-1, 1))
    phones = torch.where(torch.rand(phones.shape) < 0.04, shift, phones).view(rows, length, PHONES)
    noisy = (torch.rand(rows, 1, 1) < 0.5).float()
    pitch = semantic[..., PHONES : PHONES + PITCHES].float()
    moved = (pitch + noisy * 2.0 * torch.randn(pitch.shape)).clamp(1, config.pitch_steps)
    energy = semantic[..., PHONES + PITCHES :].float()
    energy = (energy + noisy * 1.5 * torch.randn(energy.shape)).clamp(0, config.energy_steps - 1)
    return torch.cat([phones.float(), torch.where(pitch > 0, moved, pitch), energy], -1)


def kept_residual(words: list[Tensor]) -> Tensor:
    """Sum of the codewords [B, T, latent] with later books, whole windows and single frames dropped at random."""
    first, *later = words
    rows, length = first.shape[:2]
    both = (torch.rand(rows, 1, 1) < 0.85).float()
    keep = (torch.rand(rows, 1, 1) < 0.65).float() * (torch.rand(rows, length, 1) < 0.92).float()
    return (first + both * torch.stack(later).sum(0)) * keep if later else first * keep
