"""What the seven meaningful books of a frame say, computed from features; and the stores of speech and of tokens.

A frame's tokens: the phones of the *next* frame (one in each 20 ms), its own log pitch in each 40 ms (0 where
unvoiced), its own energy. It does not know the residual books: those come from the trained encoder.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from codec.builtin.network import PITCHES, DecoderConfig
from codec.builtin.spectrum import HOPS_PER_FRAME

LOG_PITCH_RANGE = (4.6, 6.0)  # log Hz of the lowest and the highest pitch token
ENERGY_RANGE = (-12.0, -3.0)  # mean log amplitude over bands
NOISE_TRIM = -0.5  # measured: noise at its full level costs 0.1 DNSMOS in the resynthesis of the teacher


@dataclass
class Speech:
    """Features of many utterances, end to end: per hop `harmonic` [H, 64], `noise` [H, 40], `mel` [H, 80],
    `log_pitch`, `voiced` [H]; per frame `semantic` int64 [F, 7]; `frame_offsets` int64 [U + 1]; and the symbols."""

    harmonic: Tensor
    noise: Tensor
    mel: Tensor
    log_pitch: Tensor
    voiced: Tensor
    semantic: Tensor
    frame_offsets: Tensor
    symbols: Tensor
    symbol_ends: Tensor
    symbol_offsets: Tensor


def semantic_tokens(stored: dict[str, Tensor], config: DecoderConfig) -> Tensor:
    """int64 [F, 7] from one shard."""
    phones = hop_phones(stored).view(-1, HOPS_PER_FRAME)[:, 1::2]  # the symbol at 15, 35, 55 and 75 ms
    ahead = torch.cat([phones[1:], phones[:1] * 0])
    ahead[stored["hop_offsets"][1:] // HOPS_PER_FRAME - 1] = 0
    voiced = stored["voiced"].float().view(-1, PITCHES, HOPS_PER_FRAME // PITCHES)
    log_pitch = stored["log_pitch"].float().view_as(voiced)
    share = voiced.sum(-1)
    mean = (log_pitch * voiced).sum(-1) / share.clamp_min(1.0)
    low, high = LOG_PITCH_RANGE
    step = ((mean - low) / (high - low) * (config.pitch_steps - 1)).round().clamp(0, config.pitch_steps - 1).long() + 1
    pitch = torch.where(share >= HOPS_PER_FRAME // PITCHES / 2, step, 0)
    harmonic = stored["harmonic"].float().mean(-1) + torch.log(stored["voiced"].float() + 1e-4)
    level = torch.logaddexp(harmonic, stored["noise"].float().mean(-1)).view(-1, HOPS_PER_FRAME).mean(-1)
    low, high = ENERGY_RANGE
    energy = ((level - low) / (high - low) * (config.energy_steps - 1)).round().clamp(0, config.energy_steps - 1)
    return torch.cat([ahead, pitch, energy.long()[:, None]], 1)


def hop_phones(stored: dict[str, Tensor]) -> Tensor:
    """The symbol that is being spoken in every hop, int64 [H]."""
    hops, of_symbols = stored["hop_offsets"], stored["symbol_offsets"]
    assert len(of_symbols) == len(hops)
    out = torch.zeros(int(hops[-1]), dtype=torch.int64)
    for i in range(len(hops) - 1):
        ends = stored["symbol_ends"][of_symbols[i] : of_symbols[i + 1]].contiguous()
        symbols = stored["symbols"][of_symbols[i] : of_symbols[i + 1]].long()
        middle = torch.arange(int(hops[i + 1] - hops[i])) + 0.5
        at = torch.searchsorted(ends, middle, right=True).clamp(max=len(symbols) - 1)
        out[hops[i] : hops[i + 1]] = symbols[at]
    return out


def load_speech(paths: list[Path], config: DecoderConfig) -> Speech:
    """All shards, in order, in one piece. Features stay in float16 until a batch is drawn."""
    shards = [load_file(str(path)) for path in paths]
    semantic = torch.cat([semantic_tokens(shard, config) for shard in shards])

    def joined(name: str) -> Tensor:
        return torch.cat([shard[name] for shard in shards])

    def offsets(name: str) -> Tensor:
        lengths = torch.cat([shard[name].diff() for shard in shards])
        return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])

    return Speech(
        harmonic=joined("harmonic"),
        noise=joined("noise") + NOISE_TRIM,
        mel=joined("mel"),
        log_pitch=joined("log_pitch"),
        voiced=joined("voiced"),
        semantic=semantic,
        frame_offsets=offsets("hop_offsets") // HOPS_PER_FRAME,
        symbols=joined("symbols"),
        symbol_ends=joined("symbol_ends"),
        symbol_offsets=offsets("symbol_offsets"),
    )
