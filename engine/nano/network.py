"""The MOSS-TTS-Nano network: GPT-2-style blocks over frames, and a depth decoder that hears what was decided.

Parameter names are the checkpoint's own. It does not know about caches, candidates, guidance or sampling.

On a CPU in float32 with frozen weights a row's result does not depend on the other rows, bit by bit, provided that
`n_inner` is a multiple of 32 and heads are a multiple of 8 wide (elementwise kernels round what is left over of a
vector otherwise).
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.moss.config import GlobalConfig, LocalConfig
from engine.moss.frames import FrameNetwork
from engine.moss.gpt2 import Gpt2Block, LocalDecoder
from engine.moss.layers import causal_attention, rotary_angles
from engine.nano.config import NanoConfig
from search.state import Attend

gelu_new = partial(F.gelu, approximate="tanh")


class NanoDecoder(nn.Module):
    """The transformer over text and frames; `wte` embeds the text column. Rotary positions on pairs, no `wpe`."""

    def __init__(self, config: GlobalConfig) -> None:
        super().__init__()
        block = LocalConfig(
            layers=config.layers,
            heads=config.heads,
            feed_forward=config.feed_forward,
            rope_base=config.rope_theta,
            norm_eps=config.norm_eps,
        )
        self.wte = nn.Embedding(config.vocabulary, config.hidden)
        self.h = nn.ModuleList(Gpt2Block(config.hidden, block, gelu_new) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.head_dim, self.rope_base = config.head_dim, config.rope_theta

    def forward(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Embedded rows x `[*, T, H]` and int64 positions `[*, T]` -> hidden `[*, T, H]` after the final norm."""
        # float64, for vector and scalar kernels to agree once rounded: which one takes an element depends on the batch.
        angles = rotary_angles(positions, self.head_dim, self.rope_base).unsqueeze(-3).double()
        turns = torch.complex(angles.cos().float(), angles.sin().float())  # [*, 1, T, head_dim / 2]
        for index, block in enumerate(self.h):
            x = block(x, turns, index, attend)
        return cast(Tensor, self.ln_f(x))


class NanoNetwork(FrameNetwork):
    """All parameters of a checkpoint.

    Args:
        spoken_books: how many of the first books it speaks, 1 to q; None is all. The others keep the pad code.
    """

    decision_depths = 1

    def __init__(self, config: NanoConfig, spoken_books: int | None = None) -> None:
        backbone = config.backbone
        super().__init__(
            config, NanoDecoder(backbone), LocalDecoder(backbone.hidden, config.books + 1, config.local, gelu_new)
        )
        self.spoken_books = config.books if spoken_books is None else spoken_books
        assert 1 <= self.spoken_books <= config.books, self.spoken_books

    @property
    def text_embedding(self) -> nn.Embedding:
        return cast(nn.Embedding, self.transformer.wte)

    def depth_hidden(self, hidden: Tensor, text: Tensor, codes: Tensor) -> Tensor:
        """Teacher-forced depth decoder: global hidden `[*, H]`, text ids `[*]`, codes `[*, q]` -> `[*, q + 1, H]`.

        Depth 0 reads the global hidden as it is, depth 1 the embedding of the text id, depth k + 2 that of code k; the
        last code is never read.
        """
        embedded = [self.audio_embeddings[book](codes[..., book]) for book in range(self.config.books - 1)]
        inputs = torch.stack([hidden, self.text_embedding(text), *embedded], dim=-2)
        return cast(Tensor, self.local_transformer(inputs, 0, causal_attention))
