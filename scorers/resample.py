"""Audio at another rate, in a stream whose state can be forked. Knows nothing of who listens.

Band-limited interpolation (Smith, "Digital Audio Resampling"): output j lies at input position j * M / L and is a sum
over the 2H inputs around it, weighted by a sinc under a Kaiser window; L / M is the ratio of the rates. An output is
made as soon as the inputs it needs are there, so it does not depend on how the audio was cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_ZERO_CROSSINGS = 24  # of the sinc, on each side
_ROLL_OFF = 0.94  # of the lower of the two Nyquist rates: where the pass band ends
_BETA = 9.0  # Kaiser window: about 90 dB of stop band


@dataclass
class ResamplerState:
    """What is remembered of the rows; rows on axis 0.

    Attributes:
        history: float32 [R, 2H], the last inputs.
        heard: int64 [R], inputs so far.
        given: int64 [R], outputs so far.
    """

    history: Tensor
    heard: Tensor
    given: Tensor


class Resampler:
    """From one sample rate to another, both in Hz."""

    def __init__(self, rate: int, wanted: int, device: torch.device | str = "cpu") -> None:
        shared = math.gcd(rate, wanted)
        self._up, self._down = wanted // shared, rate // shared
        cutoff = _ROLL_OFF * min(1.0, self._up / self._down)
        self._half = math.ceil(_ZERO_CROSSINGS / cutoff)
        phase = torch.arange(self._up, dtype=torch.float64)[:, None] / self._up
        distance = phase - torch.arange(1 - self._half, self._half + 1, dtype=torch.float64)  # [L, 2H], in inputs
        window = torch.special.i0(_BETA * (1.0 - (distance / self._half).square()).clamp(min=0.0).sqrt())
        kernel = torch.special.sinc(cutoff * distance) * window
        self._kernel = (kernel / kernel.sum(1, keepdim=True)).float().to(device)

    def open(self, rows: int) -> ResamplerState:
        """Nothing heard yet."""
        device = self._kernel.device
        nothing = torch.zeros(rows, dtype=torch.int64, device=device)
        return ResamplerState(torch.zeros(rows, 2 * self._half, device=device), nothing, nothing.clone())

    def hear(self, state: ResamplerState, pcm: Tensor, lengths: Tensor, finished: Tensor) -> tuple[Tensor, Tensor]:
        """New audio in, new audio out: float32 [R, S] and int64 [R] lengths, both ways. Moves the state.

        A row that is finished also gives what was still waiting for later inputs, as if silence followed.
        """
        half, rows = self._half, len(pcm)
        place = torch.arange(pcm.shape[1], device=pcm.device)
        heard = torch.cat(
            [state.history, pcm.masked_fill(place >= lengths[:, None], 0.0), pcm.new_zeros(rows, half)], 1
        )
        total = state.heard + lengths
        ready = torch.where(finished, total, (total - half).clamp(min=0))
        made = -(-ready * self._up // self._down) - state.given
        out = pcm.new_zeros(rows, int(made.max()) if rows else 0)
        for row, count in enumerate(made.tolist()):
            position = (int(state.given[row]) + torch.arange(count, device=pcm.device)) * self._down
            first = position // self._up - int(state.heard[row]) + half + 1  # in `heard`, of the 2H inputs around
            windows = heard[row].unfold(0, 2 * half, 1)
            out[row, :count] = (windows[first] * self._kernel[position % self._up]).sum(1)
        kept = lengths[:, None] + torch.arange(2 * half, device=pcm.device)
        state.history, state.heard, state.given = heard.gather(1, kept), total, state.given + made
        return out, made
