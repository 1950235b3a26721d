"""The MOSS-TTS-Local network: a global decoder over frames and a depth decoder over the codebooks of a frame.

Parameter names are the checkpoint's own. Attention is an argument, so the same modules serve training, prefill and
forked decoding. The network does not know about caches, candidates, guidance or sampling.

On a CPU in float32 with frozen weights a row's result does not depend on the other rows, bit by bit, provided that
`feed_forward` of both decoders is a multiple of 32 (elementwise kernels round the remainder of the batch otherwise).
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.moss.config import GlobalConfig, MossConfig
from engine.moss.frames import FrameNetwork
from engine.moss.gpt2 import LocalDecoder
from engine.moss.layers import Linear, RMSNorm, causal_attention, merge_heads, rotary_angles, rotate_halves, split_heads
from search.state import Attend


class GlobalAttention(nn.Module):
    """Grouped-query self-attention with normalised queries and keys and half-split rotary positions."""

    def __init__(self, config: GlobalConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        query_width, key_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = Linear(config.hidden, query_width, bias=False)
        self.k_proj = Linear(config.hidden, key_width, bias=False)
        self.v_proj = Linear(config.hidden, key_width, bias=False)
        self.o_proj = Linear(query_width, config.hidden, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, attend: Attend) -> Tensor:
        value = split_heads(self.v_proj(x), self.kv_heads)
        query = rotate_halves(self.q_norm(split_heads(self.q_proj(x), self.heads)), cos, sin).to(value.dtype)
        key = rotate_halves(self.k_norm(split_heads(self.k_proj(x), self.kv_heads)), cos, sin).to(value.dtype)
        return cast(Tensor, self.o_proj(merge_heads(attend(layer, query, key, value))))


class GatedFeedForward(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: GlobalConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden, config.feed_forward, bias=False)
        self.up_proj = Linear(config.hidden, config.feed_forward, bias=False)
        self.down_proj = Linear(config.feed_forward, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)))


class GlobalBlock(nn.Module):
    """Pre-norm transformer block of the global decoder."""

    def __init__(self, config: GlobalConfig) -> None:
        super().__init__()
        self.self_attn = GlobalAttention(config)
        self.mlp = GatedFeedForward(config)
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, layer, attend)
        return cast(Tensor, x + self.mlp(self.post_attention_layernorm(x)))


class GlobalDecoder(nn.Module):
    """The transformer over text and frames (Qwen3 layout); `embed_tokens` embeds the text column."""

    def __init__(self, config: GlobalConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(GlobalBlock(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.head_dim, self.rope_theta = config.head_dim, config.rope_theta

    def forward(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Embedded rows x `[*, T, H]` and int64 positions `[*, T]` -> hidden `[*, T, H]` after the final norm."""
        # float64, for vector and scalar kernels to agree once rounded: which one takes an element depends on the batch.
        angles = rotary_angles(positions, self.head_dim, self.rope_theta).unsqueeze(-3).double()
        cos, sin = angles.cos().float(), angles.sin().float()
        for index, block in enumerate(self.layers):
            x = block(x, cos, sin, index, attend)
        return cast(Tensor, self.norm(x))


class MossNetwork(FrameNetwork):
    """All parameters of a checkpoint. Float32 weights run as they are or under bfloat16 autocast."""

    def __init__(self, config: MossConfig) -> None:
        transformer = GlobalDecoder(config.backbone)
        local = LocalDecoder(config.backbone.hidden, config.books, config.local)
        super().__init__(config, transformer, local)
        if config.text_head_mode == "binary":
            self.local_text_lm_head = Linear(config.backbone.hidden, 2, bias=False)

    @property
    def text_embedding(self) -> nn.Embedding:
        return cast(nn.Embedding, self.transformer.embed_tokens)

    def depth_hidden(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """Teacher-forced depth decoder: global hidden `[*, H]` and the frame's codes `[*, q]` -> `[*, q, H]`.

        Depth 0 reads the global hidden as it is, depth k + 1 the embedding of code k; the last code is never read.
        """
        depth = self.config.books
        embedded = [self.audio_embeddings[book](codes[..., book]) for book in range(depth - 1)]
        inputs = torch.stack([hidden, *embedded], dim=-2)
        return cast(Tensor, self.local_transformer(inputs, 0, causal_attention))

    def stop_logits(self, local_hidden: Tensor) -> Tensor:
        """From the binary head where the checkpoint has one."""
        if self.config.text_head_mode == "binary":
            return cast(Tensor, self.local_text_lm_head(local_hidden[..., 0, :]))
        return super().stop_logits(local_hidden)
