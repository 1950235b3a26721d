"""Harmonic-plus-noise synthesis in a stream: parameters of 10 ms hops to samples.

A pulse train of unit harmonics runs through a minimum-phase short-time filter whose gains are the harmonic amplitudes;
noise of random phase is shaped by the noise amplitudes; both are overlap-added in one inverse transform. The sound lags
the parameters by 40 ms (30 for the window, 10 for the glide between hops), which the silence at the end of an utterance
covers. It does not know where parameters come from.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from codec.builtin.spectrum import (
    CEILING,
    FFT,
    FLOOR,
    HARMONIC_BANDS,
    HOP,
    NOISE_BANDS,
    SAMPLE_RATE,
    bin_frequencies,
    interpolation,
)
from search.noise import RowNoise

NOISE_SEED = 1  # the same noise under every utterance: counted by (hop, bin), it depends on nothing else
HIGHEST_HARMONIC = 11_000.0  # Hz
_LATE = 2  # hops between a hop's source and its filter
_KEPT = FFT - HOP
_LOG_PITCH = (4.2, 6.2)
_CYCLE = 1 << 40  # phase is a whole number of these parts, so that adding it up is exact however the stream is cut
_ANALYSIS = 1200  # samples of the window that noise amplitudes were measured with

# Predicted envelopes are smoother than measured ones. Each of these was kept because DNSMOS rose by it.
_SHARPEN, _SHARPEN_BANDS = 0.3, 11  # harmonic bands move away from the mean of their neighbours
_QUIET, _EXPAND, _MOST_EXPANDED = -9.0, 1.5, 1.5  # below this mean noise level, noise falls faster (natural log)


@dataclass
class SynthesizerState:
    """Rows on axis 0. `phase` int64 [R] counts 2^-40 of a cycle; `glide` [R, 2] is the last pitch (Hz) and voicing;
    `envelopes` [R, 2, 104] log amplitudes still to be used; `source` and `overlap` [R, 720] samples.
    """

    phase: Tensor
    glide: Tensor
    envelopes: Tensor
    source: Tensor
    overlap: Tensor


class Synthesizer:
    """The fixed tables of the synthesis; all memory is in the state that it is handed."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        bins = bin_frequencies(FFT)
        self._harmonic = (_sharpening() @ interpolation(HARMONIC_BANDS, bins)).to(self.device)
        self._noise = interpolation(NOISE_BANDS, bins).to(self.device)
        self._causal = _causal_part(FFT).to(self.device)
        self._window = torch.hann_window(FFT, periodic=True, device=self.device)
        self._ramp = (torch.arange(HOP, device=self.device) + 1.0) / HOP
        self._random = RowNoise(NOISE_SEED, [None], 1, self.device)
        # An amplitude was measured as the size of a Hann-windowed bin times 4 / 1200; this is its deviation per sample,
        # as the size of one bin of the transform used here.
        self._noise_scale = math.sqrt(_ANALYSIS / 6.0) * math.sqrt(FFT) * math.sqrt(1.5)

    def state(self, rows: int) -> SynthesizerState:
        """The state before the first hop: silence, unvoiced."""
        zeros = torch.zeros(rows, _KEPT, device=self.device)
        return SynthesizerState(
            phase=torch.zeros(rows, dtype=torch.int64, device=self.device),
            glide=torch.tensor([[200.0, 0.0]], device=self.device).repeat(rows, 1),
            envelopes=torch.full((rows, _LATE, HARMONIC_BANDS + NOISE_BANDS), FLOOR, device=self.device),
            source=zeros,
            overlap=zeros.clone(),
        )

    def __call__(self, parameters: Tensor, state: SynthesizerState, first_hop: int) -> tuple[Tensor, SynthesizerState]:
        """Samples float32 [R, 240 T] from parameters float32 [R, T, 106]; `first_hop` is the number of hops before."""
        rows, hops, _ = parameters.shape
        pulses, phase, glide = self._pulses(parameters[..., -2:], state)
        source = torch.cat([state.source, pulses], 1)
        envelopes = torch.cat([state.envelopes, parameters[..., :-2]], 1)
        spectrum = torch.fft.rfft(source.unfold(1, FFT, HOP) * self._window)  # [R, T, bins]
        frames = torch.fft.irfft(self._filtered(spectrum, envelopes[:, :hops], first_hop), n=FFT) * self._window / 1.5
        out = torch.nn.functional.pad(state.overlap, (0, hops * HOP))
        for part in range(FFT // HOP):
            out[:, part * HOP : (part + hops) * HOP] += frames[..., part * HOP : (part + 1) * HOP].reshape(rows, -1)
        after = SynthesizerState(phase, glide, envelopes[:, hops:], source[:, -_KEPT:], out[:, hops * HOP :])
        return out[:, : hops * HOP], after

    def _pulses(self, parameters: Tensor, state: SynthesizerState) -> tuple[Tensor, Tensor, Tensor]:
        """The pulse train float32 [R, 240 T] of log pitch and voicing [R, T, 2]; and the phase and glide after it.

        All harmonics up to 11 kHz at once: sum of cos(h t) for h = 1..H is sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2.
        """
        rows = parameters.shape[0]
        pitch = torch.exp(parameters[..., 0].clamp(*_LOG_PITCH))
        voiced = (parameters[..., 1] * 4.0 - 1.5).clamp(0.0, 1.0)
        ends = torch.stack([pitch, voiced], -1)  # [R, T, 2]
        path = torch.cat([state.glide[:, None], ends], 1)
        curve = path[:, :-1, None] + (path[:, 1:, None] - path[:, :-1, None]) * self._ramp[:, None]  # [R, T, 240, 2]
        frequency, gate = curve[..., 0].reshape(rows, -1), curve[..., 1].reshape(rows, -1)
        advance = (frequency.double() * (_CYCLE / SAMPLE_RATE)).long()
        phase = torch.remainder(state.phase[:, None] + torch.cumsum(advance, 1), _CYCLE)
        # Measured from the nearest pulse, so that float32 is finest where the train is steepest.
        angle = ((phase - (phase > _CYCLE // 2) * _CYCLE).double() * (2.0 * math.pi / _CYCLE)).float()
        top = torch.floor(HIGHEST_HARMONIC / frequency) + 0.5
        below = 2.0 * torch.sin(angle * 0.5)
        near = below.abs() <= 1e-4
        train = torch.where(near, top, torch.sin(top * angle) / torch.where(near, 1.0, below)) - 0.5
        return train * gate, phase[:, -1], ends[:, -1]

    def _filtered(self, spectrum: Tensor, envelopes: Tensor, first_hop: int) -> Tensor:
        """Gains on the source's spectrum, and shaped noise: complex64 [R, T, bins]."""
        harmonic, noise = envelopes[..., :HARMONIC_BANDS], envelopes[..., HARMONIC_BANDS:]
        gain = self._minimum_phase((harmonic @ self._harmonic).clamp(max=CEILING))
        noise = noise - ((_QUIET - noise.mean(-1, keepdim=True)) * _EXPAND).clamp(0.0, _MOST_EXPANDED)
        level = torch.exp((noise @ self._noise).clamp(max=CEILING)) * self._noise_scale
        turns = self._random.uniform(first_hop, spectrum.shape[1], spectrum.shape[2])  # [1, T, bins]
        noise_phase = torch.polar(torch.ones_like(turns), turns * (2.0 * math.pi))
        return spectrum * gain + noise_phase * level

    def _minimum_phase(self, log_gain: Tensor) -> Tensor:
        """The complex gain of the causal filter with this log size: fold the cepstrum onto positive time."""
        cepstrum = torch.fft.irfft(log_gain, n=FFT) * self._causal
        return torch.exp(torch.fft.rfft(cepstrum))


def _causal_part(size: int) -> Tensor:
    """Weights that fold an even cepstrum of `size` samples onto positive time."""
    weights = torch.zeros(size)
    weights[0] = weights[size // 2] = 1.0
    weights[1 : size // 2] = 2.0
    return weights


def _sharpening() -> Tensor:
    """The matrix [64, 64] that moves every harmonic band away from the mean of its neighbours."""
    reach = _SHARPEN_BANDS // 2
    one = torch.eye(HARMONIC_BANDS)
    padded = torch.nn.functional.pad(one[None], (reach, reach), mode="replicate")
    mean = torch.nn.functional.avg_pool1d(padded, _SHARPEN_BANDS, stride=1)[0]
    return one + _SHARPEN * (one - mean)
