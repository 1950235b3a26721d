"""The recogniser: log-mel steps to log-probabilities of phonemes, strictly causal, every piece of memory an argument.

Residual blocks of dilated causal convolutions, in the line of Bai et al., "An Empirical Evaluation of Generic
Convolutional and Recurrent Networks for Sequence Modeling" (2018). Knows nothing of text, nor of how a text is matched.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scorers.builtin.features import HOPS_PER_STEP, MELS
from scorers.builtin.symbols import CLASSES, SYMBOLS

TAPS = 3
_HIGHEST_BANDS = 6
LEAST_STEPS = 8  # the CPU's matrix kernels round fewer rows differently, so a batch never has fewer


@dataclass(frozen=True)
class ListenerConfig:
    """Sizes. One block for each entry of `dilations`, in steps of 20 ms."""

    width: int = 192
    inner: int = 256
    dilations: tuple[int, ...] = (1, 2, 4, 1, 2, 4, 8, 1)

    @property
    def context(self) -> list[int]:
        """Past steps that each block remembers."""
        return [(TAPS - 1) * dilation for dilation in self.dilations]


class Block(nn.Module):
    """`x + out(gelu(taps(norm(x))))`, the taps at the present step and one and two dilations back."""

    def __init__(self, width: int, inner: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.norm = nn.LayerNorm(width)
        self.taps = nn.Linear(TAPS * width, inner)
        self.out = nn.Linear(inner, width)

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """x [R, T, width], past [R, 2 * dilation, width]: the new x, and past and present in one line."""
        line = torch.cat([past, self.norm(x).to(past.dtype)], 1)
        steps = x.shape[1]
        near = [line[:, tap * self.dilation : tap * self.dilation + steps] for tap in range(TAPS)]
        return x + self.out(F.gelu(self.taps(torch.cat(near, -1)))), line


class Recogniser(nn.Module):
    """Log-mel steps [R, T, 160] to hidden steps and to log-probabilities of the blank and the phonemes."""

    mean: Tensor
    deviation: Tensor
    seconds: Tensor

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(MELS))
        self.register_buffer("deviation", torch.ones(MELS))
        self.register_buffer("seconds", torch.full((SYMBOLS,), 0.06))  # that each symbol takes in the training speech
        self.enter = nn.Linear(HOPS_PER_STEP * MELS, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.inner, dilation) for dilation in config.dilations)
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, CLASSES)

    def memory(self, rows: int, device: torch.device | str = "cpu") -> list[Tensor]:
        """The memory before the first step: one float32 [R, 2 * dilation, width] a block."""
        return [torch.zeros(rows, steps, self.config.width, device=device) for steps in self.config.context]

    def forward(self, features: Tensor, memory: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Hidden steps [R, T, width], and for each block its memory followed by the new steps."""
        hops = features.view(*features.shape[:-1], HOPS_PER_STEP, MELS)
        x = self.enter(((hops - self.mean) / self.deviation).flatten(-2))
        lines = []
        for block, past in zip(self.blocks, memory, strict=True):
            x, line = block(x, past)
            lines.append(line)
        return self.norm(x), lines

    def widened(self, features: Tensor, bands: int) -> Tensor:
        """Features whose bands from `bands` up are empty, because the audio had no such frequencies, with these filled.

        Each gets the mean level, in its own deviations, of the highest bands that are there: what hisses there goes on
        above. Speech of 24 kHz is all that the network has heard; an empty band is nothing that it knows.
        """
        hops = features.view(*features.shape[:-1], HOPS_PER_STEP, MELS)
        level = ((hops - self.mean) / self.deviation)[..., bands - _HIGHEST_BANDS : bands].mean(-1, keepdim=True)
        filled = self.mean[bands:] + self.deviation[bands:] * level
        return torch.cat([hops[..., :bands], filled], -1).flatten(-2)

    def read(self, features: Tensor, memory: list[Tensor], real: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Log-probabilities float32 [R, T, CLASSES], and the memory after each row's first `real` (int64 [R]) steps."""
        hidden, lines = self(features, memory)
        return self.head(hidden).float().log_softmax(-1), [
            _newest(line, real, context) for line, context in zip(lines, self.config.context, strict=True)
        ]


def _newest(line: Tensor, real: Tensor, context: int) -> Tensor:
    places = real[:, None] + torch.arange(context, device=line.device)
    return line.gather(1, places[..., None].expand(-1, -1, line.shape[-1]))
