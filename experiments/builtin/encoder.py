"""The training side of the codec: an encoder of what the meaningful books leave out, and its residual quantiser.

Neither is shipped: the recipe encodes its speech once, after which the codes stand. The quantiser learns its codebooks
by exponential moving averages and does not get a gradient.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from codec.builtin.network import DecoderConfig
from codec.builtin.spectrum import HOPS_PER_FRAME
from experiments.builtin.analysis import MEL_BANDS

FEATURES = MEL_BANDS + 2


class Encoder(nn.Module):
    """Mel, pitch and voicing of 8 hops to one latent a frame; sees two frames on either side."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, latent: int, width: int = 256) -> None:
        super().__init__()
        self.entry = nn.Linear(FEATURES * HOPS_PER_FRAME, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, k, padding=k // 2) for k in (3, 3, 1))
        self.exit = nn.Linear(width, latent)
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("deviation", torch.ones(FEATURES))

    def forward(self, features: Tensor) -> Tensor:
        """float32 [B, 8 T, 82] to [B, T, latent], each latent normalised to zero mean and unit variance."""
        x = (features - self.mean) / self.deviation
        x = self.entry(x.reshape(len(x), -1, HOPS_PER_FRAME * FEATURES))
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = x + convolution(F.gelu(norm(x)).transpose(1, 2)).transpose(1, 2)
        out = self.exit(x).float()
        return F.layer_norm(out, out.shape[-1:])


class Quantizer(nn.Module):
    """Residual vector quantiser. Codes that fall out of use are moved onto vectors of the batch."""

    codebooks: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, config: DecoderConfig, decay: float = 0.99) -> None:
        super().__init__()
        shape = (config.residual_books, config.residual_size, config.latent)
        self.decay = decay
        self.register_buffer("codebooks", torch.zeros(shape))
        self.register_buffer("counts", torch.ones(shape[:2]))
        self.register_buffer("sums", torch.zeros(shape))

    @torch.no_grad()
    def start(self, latents: Tensor, rounds: int = 10) -> None:
        """Place the codewords by k-means on latents [N, latent], book after book."""
        rest = latents.clone()
        for book in range(len(self.codebooks)):
            words = rest[torch.randperm(len(rest))[: self.codebooks.shape[1]]].clone()
            for _ in range(rounds):
                nearest = _nearest(rest, words)
                count = torch.bincount(nearest, minlength=len(words)).float()
                sums = torch.zeros_like(words).index_add_(0, nearest, rest)
                used = count > 0
                words[used] = sums[used] / count[used, None]
            self.codebooks[book] = words
            self.counts[book] = count.clamp_min(1.0) / len(rest) * 2000.0
            self.sums[book] = words * self.counts[book][:, None]
            rest = rest - words[_nearest(rest, words)]

    @torch.no_grad()
    def forward(self, latents: Tensor, learn: bool) -> tuple[list[Tensor], Tensor]:
        """latents [N, latent] to the codeword of each book (a list of [N, latent]) and codes int64 [N, books]."""
        rest, words, codes = latents.detach(), [], []
        for book in range(len(self.codebooks)):
            nearest = _nearest(rest, self.codebooks[book])
            word = self.codebooks[book][nearest].clone()
            if learn:
                self._update(book, rest, nearest)
            rest = rest - word
            words.append(word)
            codes.append(nearest)
        return words, torch.stack(codes, 1)

    def _update(self, book: int, rest: Tensor, nearest: Tensor) -> None:
        counts, sums, words = self.counts[book], self.sums[book], self.codebooks[book]
        counts.lerp_(torch.bincount(nearest, minlength=len(words)).float(), 1.0 - self.decay)
        sums.lerp_(torch.zeros_like(words).index_add_(0, nearest, rest), 1.0 - self.decay)
        words.copy_(sums / counts.clamp_min(1e-3)[:, None])
        dead = counts < counts.mean() * 0.03
        if dead.any():
            fresh = rest[torch.randint(len(rest), (int(dead.sum()),))]
            counts[dead] = counts.mean() * 0.3
            words[dead], sums[dead] = fresh, fresh * counts[dead][:, None]


def _nearest(vectors: Tensor, words: Tensor) -> Tensor:
    return ((words * words).sum(1) - 2.0 * vectors @ words.T).argmin(1)
