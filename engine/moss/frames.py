"""What all networks of the family share: one embedding table a codebook, tied heads, and where the heads read.

A row is a text id and the codes of a frame. A global decoder reads rows, a depth decoder says the next frame codebook
by codebook. It does not know what the decoders are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engine.moss.config import MossConfig
from engine.moss.gpt2 import LocalDecoder
from engine.moss.layers import Linear, linear


class FrameNetwork(nn.Module):
    """A global decoder, a depth decoder, embeddings and heads. Tied pairs are one Parameter under two names.

    H = hidden width, q = codebooks, V_k = size of codebook k. Leading axes are free.

    Attributes:
        transformer: the global decoder: embedded rows `[*, T, H]`, int64 positions `[*, T]`, attend -> `[*, T, H]`.
        decision_depths: depths that the text id of a frame takes between the global hidden and the first code: 0 where
            the depth decoder never hears what was decided. Audio head k reads depth k + decision_depths.
        spoken_books: books that are drawn; the others stay at the pad code.
    """

    decision_depths = 0

    def __init__(self, config: MossConfig, transformer: nn.Module, local_transformer: LocalDecoder) -> None:
        super().__init__()
        hidden = config.backbone.hidden
        self.config = config
        self.transformer = transformer
        self.local_transformer = local_transformer
        self.audio_embeddings = nn.ModuleList(nn.Embedding(size, hidden) for size in config.codebook_sizes)
        self.audio_lm_heads = nn.ModuleList(Linear(hidden, size, bias=False) for size in config.codebook_sizes)
        self.text_lm_head = Linear(hidden, config.backbone.vocabulary, bias=False)
        self.spoken_books = config.books
        self.tie()

    @property
    def text_embedding(self) -> nn.Embedding:
        """The table of the text column, which the text head shares."""
        raise NotImplementedError

    def tie(self) -> None:
        """Make every head share its embedding's Parameter, unless the config keeps them apart.

        Needed again after parameters have been replaced.
        """
        if not self.config.tied:
            return
        self.text_lm_head.weight = self.text_embedding.weight
        for head, embedding in zip(self.audio_lm_heads, self.audio_embeddings, strict=True):
            head.weight = embedding.weight

    def embed(self, rows: Tensor) -> Tensor:
        """Rows `[*, 1 + q]` int64 (text id, then codes) -> `[*, H]`; a pad code adds nothing."""
        total: Tensor = self.text_embedding(rows[..., 0])
        for book, embedding in enumerate(self.audio_embeddings):
            codes = rows[..., 1 + book]
            spoken = codes != self.config.audio_pad
            total = total + embedding(codes * spoken) * spoken.unsqueeze(-1)
        return total

    def audio_logits(self, local_hidden: Tensor) -> list[Tensor]:
        """Depth hidden `[*, D, H]` of all depths -> one `[*, V_k]` per codebook."""
        spoken = local_hidden[..., self.decision_depths :, :]
        return [head(spoken[..., book, :]) for book, head in enumerate(self.audio_lm_heads)]

    def stop_logits(self, local_hidden: Tensor) -> Tensor:
        """Depth hidden `[*, D, H]` -> `[*, 2]` from depth 0, in the order continue, stop."""
        rows = torch.stack([self.text_lm_head.weight[candidate] for candidate in self.stop_candidates()])
        return linear(local_hidden[..., 0, :], rows)

    def stop_candidates(self) -> Sequence[int]:
        """Text ids of the two outcomes of the stop decision, continue first."""
        return [self.config.ids.assistant_slot, self.config.ids.audio_end]
