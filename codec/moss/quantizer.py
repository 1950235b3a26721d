"""Residual quantisation: vectors to codes of several books and back, always in float32.

It does not know where the vectors come from, nor how many books a caller wants: that is an argument.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from codec.moss.config import QuantizerConfig


class Book(nn.Module):
    """One codebook, behind a projection to its few dimensions and back."""

    def __init__(self, width: int, size: int, code_width: int) -> None:
        super().__init__()
        self.in_proj, self.out_proj = projection(width, code_width), projection(code_width, width)
        self.codebook = nn.Embedding(size, code_width)

    def nearest(self, residual: Tensor) -> Tensor:
        """The code of the largest cosine, int64 [*]; of equal ones the first. `residual` float32 [*, width]."""
        wanted = F.normalize(self.in_proj(residual), dim=-1)
        return (wanted @ F.normalize(self.codebook.weight, dim=-1).T).argmax(-1)

    def vectors(self, codes: Tensor) -> Tensor:
        """Float32 [*, width] of codes [*]; codebook vectors keep their length."""
        return self.out_proj(self.codebook(codes))  # type: ignore[no-any-return]


class Quantizer(nn.Module):
    """The books in order: each codes what those before it left over."""

    def __init__(self, config: QuantizerConfig) -> None:
        super().__init__()
        self.input_proj = projection(config.inputs, config.width)
        self.quantizers = nn.ModuleList(Book(config.width, config.size, config.code_width) for _ in range(config.books))
        self.output_proj = projection(config.width, config.outputs)

    def encode(self, hidden: Tensor, books: int) -> Tensor:
        """Codes int64 [*, books] of vectors float32 [*, inputs]."""
        residual, codes = self.input_proj(hidden), []
        for book in self._books(books):
            codes.append(book.nearest(residual))
            residual = residual - book.vectors(codes[-1])
        return torch.stack(codes, -1)

    def decode(self, codes: Tensor) -> Tensor:
        """Vectors float32 [*, outputs] of codes [*, n] of the first n books."""
        parts = [book.vectors(codes[..., place]) for place, book in enumerate(self._books(codes.shape[-1]))]
        return self.output_proj(torch.stack(parts).sum(0))  # type: ignore[no-any-return]

    def _books(self, count: int) -> list[Book]:
        return [book for book in self.quantizers if isinstance(book, Book)][:count]


def projection(inputs: int, outputs: int) -> nn.Linear | nn.Identity:
    """A linear map with bias; none where the sizes agree, as in all versions."""
    return nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs)
