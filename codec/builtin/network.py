"""The decoder network of the built-in voice: codes of 80 ms frames to synthesiser parameters of 10 ms hops.

Strictly causal. Every piece of memory is a tensor that the caller hands in and gets back, and attention itself is an
argument, so one network serves training on whole windows and decoding in forked streams. It does not know how its
parameters become sound.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from codec.builtin.spectrum import FRAME, HARMONIC_BANDS, HOPS_PER_FRAME, NOISE_BANDS, SAMPLE_RATE

PHONES, PITCHES = 4, 2  # books of a frame: 4 phone, 2 pitch and 1 energy token, then the residual books
SEMANTIC = PHONES + PITCHES + 1
PARAMETERS = HARMONIC_BANDS + NOISE_BANDS + 2  # and log pitch, voicing
FRAME_TAPS, HOP_TAPS = 3, 5
_FEWEST_ROWS = 16  # matrix kernels round fewer rows otherwise (found by trial: x86, torch 2.13, one and two threads)

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the decoder. `window` is the number of frames that attention sees, the newest among them."""

    symbols: int = 180
    pitch_steps: int = 200
    energy_steps: int = 120
    residual_books: int = 2
    residual_size: int = 256
    latent: int = 64
    phone_width: int = 48
    width: int = 256
    heads: int = 4
    layers: int = 3
    window: int = 16
    hop_width: int = 128
    hop_layers: int = 4
    pitch_width: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"codec config: {name} is {value!r}; a positive whole number is needed")
        if self.width % (2 * self.heads):
            raise ValueError(f"codec config: width {self.width} is not an even multiple of heads {self.heads}")

    @property
    def book_sizes(self) -> list[int]:
        """Codes in each book: phones, pitch (0 is unvoiced), energy, residuals."""
        residual = [self.residual_size] * self.residual_books
        return [self.symbols] * PHONES + [self.pitch_steps + 1] * PITCHES + [self.energy_steps] + residual


@dataclass
class NetworkMemory:
    """What the convolutions and the look-ahead remember of the past, rows on axis 0.

    `frames` float32 [R, 2, inputs]; `phones` int64 [R, 4], the phones that the last frame announced;
    `hops` and `pitch`: one float32 [R, 4, width] a layer, of the hop layers and of the pitch head.
    """

    frames: Tensor
    phones: Tensor
    hops: list[Tensor]
    pitch: list[Tensor]


def apply_rows(layer: nn.Linear, x: Tensor) -> Tensor:
    """`layer(x)` with enough rows in the product that a row's result does not depend on how many there are."""
    rows = x.numel() // x.shape[-1]
    if rows >= _FEWEST_ROWS:
        return layer(x)  # type: ignore[no-any-return]
    flat = F.pad(x.reshape(rows, -1), (0, 0, 0, _FEWEST_ROWS - rows))
    return layer(flat)[:rows].view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


class CausalConvolution(nn.Module):
    """A convolution over time as one product over concatenated taps: [R, T, in] and history [R, taps - 1, in]."""

    def __init__(self, inputs: int, outputs: int, taps: int) -> None:
        super().__init__()
        self.taps = taps
        self.weight = nn.Linear(inputs * taps, outputs)

    def forward(self, x: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
        padded = torch.cat([history.to(x.dtype), x], 1)
        length = x.shape[1]
        windows = torch.cat([padded[:, tap : tap + length] for tap in range(self.taps)], -1)
        return apply_rows(self.weight, windows), padded[:, length:]


class Block(nn.Module):
    """One transformer layer with rotary positions; attention over the past is the caller's."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, layer: int, turn: Tensor, attend: Attend) -> Tensor:
        """x [R, T, width]; turn [T, head_dim / 2] complex, the rotation of each position."""
        rows, length, width = x.shape
        projected = apply_rows(self.project, self.attention_norm(x))
        split = projected.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # [3, R, H, T, d]
        query, key, value = _rotate(split[0], turn), _rotate(split[1], turn), split[2]
        mixed = attend(layer, query, key, value).transpose(1, 2).reshape(rows, length, width)
        x = x + apply_rows(self.merge, mixed)
        return x + apply_rows(self.narrow, F.gelu(apply_rows(self.widen, self.feed_norm(x))))


class HopLayer(nn.Module):
    """A causal convolution and a feed-forward layer at 10 ms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.convolution = CausalConvolution(width, width, HOP_TAPS)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
        mixed, history = self.convolution(F.gelu(self.convolution_norm(x)), history)
        x = x + mixed
        return x + apply_rows(self.narrow, F.gelu(apply_rows(self.widen, self.feed_norm(x)))), history


class PitchHead(nn.Module):
    """Log pitch and voicing of every hop from tokens alone, through convolutions only.

    Phase adds pitch up over a whole utterance, so a last-bit difference in pitch grows into another waveform.
    Attention rounds differently with the way a stream was cut and committed; convolutions over padded rows do not.
    """

    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.phones = nn.ModuleList(nn.Embedding(symbols, width) for _ in range(3))
        self.spread = nn.Linear(2 * PITCHES, HOPS_PER_FRAME * width)
        self.first = CausalConvolution(width, width, HOP_TAPS)
        self.second = CausalConvolution(width, width, HOP_TAPS)
        self.exit = nn.Linear(width, 2)

    def forward(self, phones: Tensor, pitch: Tensor, histories: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """[R, 8 T, 2] from phones [R, T, 8] (own, then announced) and pitch [R, T, 4]; and the histories after."""
        rows, length, _ = pitch.shape
        x = apply_rows(self.spread, pitch).view(rows, length * HOPS_PER_FRAME, -1)
        x = F.gelu(x + spoken(self.phones, phones))
        after = []
        for convolution, history in zip((self.first, self.second), histories, strict=True):
            mixed, history = convolution(x, history)
            x = x + F.gelu(mixed)
            after.append(history)
        return apply_rows(self.exit, x), after


def spoken(tables: nn.ModuleList, phones: Tensor) -> Tensor:
    """Sum over `tables` of the embeddings of the phone of a hop, and of those 20 and 40 ms later: [R, 8 T, width]."""
    parts = [table(phones[..., ahead : ahead + PHONES]) for ahead, table in enumerate(tables)]
    return torch.stack(parts).sum(0).repeat_interleave(HOPS_PER_FRAME // PHONES, 2).flatten(1, 2)


class Decoder(nn.Module):
    """Codes to log harmonic amplitudes (64), log noise amplitudes (40), log pitch and voicing of every hop."""

    codebooks: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        narrow = config.hop_width
        self.phone = nn.Embedding(config.symbols, config.phone_width)
        self.register_buffer("codebooks", torch.zeros(config.residual_books, config.residual_size, config.latent))
        self.latent = nn.Linear(config.latent, 96)
        self.inputs = PHONES * config.phone_width + 2 * PITCHES + 1 + 96
        self.entry = CausalConvolution(self.inputs, config.width, FRAME_TAPS)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.spread = nn.Linear(config.width, HOPS_PER_FRAME * narrow)
        # Three tables, for now and a little later: how a sound begins depends on what follows.
        self.hop_phones = nn.ModuleList(nn.Embedding(config.symbols, narrow) for _ in range(3))
        self.hop_pitch = nn.Linear(2, narrow)
        self.hop_layers = nn.ModuleList(HopLayer(narrow) for _ in range(config.hop_layers))
        self.exit = nn.Linear(narrow, HARMONIC_BANDS + NOISE_BANDS)
        self.pitch_head = PitchHead(config.symbols, config.pitch_width)
        self.register_buffer("mean", torch.zeros(PARAMETERS))
        self.register_buffer("deviation", torch.ones(PARAMETERS))

    def memory(self, rows: int) -> NetworkMemory:
        """The memory before the first frame: silence."""
        weight = self.exit.weight

        def zeros(width: int) -> Tensor:
            return weight.new_zeros(rows, HOP_TAPS - 1, width)

        return NetworkMemory(
            frames=weight.new_zeros(rows, FRAME_TAPS - 1, self.inputs),
            phones=torch.zeros(rows, PHONES, dtype=torch.int64, device=weight.device),
            hops=[zeros(self.config.hop_width) for _ in self.hop_layers],
            pitch=[zeros(self.config.pitch_width) for _ in range(2)],
        )

    def residual(self, codes: Tensor) -> Tensor:
        """Sum of the codewords of the residual books: int64 [R, T, books] to float32 [R, T, latent]."""
        parts = [F.embedding(codes[..., book], self.codebooks[book]) for book in range(self.config.residual_books)]
        return torch.stack(parts).sum(0)

    def forward(
        self, semantic: Tensor, residual: Tensor, memory: NetworkMemory, positions: Tensor, attend: Attend
    ) -> tuple[Tensor, NetworkMemory]:
        """Parameters float32 [R, 8 T, 106] of the new frames, and the memory after them.

        semantic: [R, T, 7] phone, pitch and energy tokens (pitch and energy may be fractional in training);
        residual: float32 [R, T, latent]; positions: int64 [T], frames since the start.
        """
        rows, length, _ = semantic.shape
        announced = semantic[..., :PHONES].long()
        own = torch.cat([memory.phones[:, None], announced[:, :-1]], 1)
        pitch, voiced = self._pitch(semantic[..., PHONES : PHONES + PITCHES])
        energy = semantic[..., SEMANTIC - 1 :].to(residual.dtype) / (self.config.energy_steps - 1) * 2.0 - 1.0
        embedded = self.phone(announced).flatten(-2)
        x = torch.cat([embedded, pitch, voiced, energy, apply_rows(self.latent, residual)], -1)
        x, frames = self.entry(x, memory.frames)
        turn = rotation(positions, self.config.width // self.config.heads)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, turn, attend)
        x = apply_rows(self.spread, x).view(rows, length * HOPS_PER_FRAME, -1)
        phones = torch.cat([own, announced], -1)
        of_pitch = apply_rows(self.hop_pitch, torch.stack([pitch, voiced], -1))
        x = x + spoken(self.hop_phones, phones) + of_pitch.repeat_interleave(HOPS_PER_FRAME // PITCHES, 2).flatten(1, 2)
        hops = []
        for hop_layer, history in zip(self.hop_layers, memory.hops, strict=True):
            x, history = hop_layer(x, history)
            hops.append(history)
        contour, of_pitch_head = self.pitch_head(phones, torch.cat([pitch, voiced], -1), memory.pitch)
        out = torch.cat([apply_rows(self.exit, x), contour], -1).float() * self.deviation + self.mean
        return out, NetworkMemory(frames, announced[:, -1], hops, of_pitch_head)

    def _pitch(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Pitch in -1..1 (0 where unvoiced) and voicing 0 or 1, float32 [R, T, 2] each."""
        voiced = (tokens > 0).float()
        return ((tokens.float() - 1.0) / (self.config.pitch_steps - 1) * 2.0 - 1.0) * voiced, voiced


def rotation(positions: Tensor, head_dim: int) -> Tensor:
    """Rotary angles as unit complex numbers, complex64 [T, head_dim / 2] (RoPE, base 100: windows are short)."""
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].float() * 100.0 ** (-steps / head_dim)
    return torch.polar(torch.ones_like(angles), angles)


def _rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate pairs of neighbours: x [R, H, T, d], turn [T, d / 2]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


assert FRAME * 25 == SAMPLE_RATE * 2, "a frame is 80 ms"
