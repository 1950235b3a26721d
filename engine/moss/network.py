"""The MOSS-TTS-Local network: a global decoder over frames and a depth decoder over the codebooks of a frame.

Parameter names are the checkpoint's own. Attention is an argument, so the same modules serve training, prefill and
forked decoding. The network does not know about caches, candidates, guidance or sampling.

On a CPU in float32 with frozen weights a row's result does not depend on the other rows, bit by bit, provided that
`feed_forward` of both decoders is a multiple of 32 (elementwise kernels round the remainder of the batch otherwise).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.moss.config import GlobalConfig, LocalConfig, MossConfig
from search.state import Attend

_ROWS = 8


def causal_attention(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """An `Attend` without memory: position t sees positions 0..t of the same call. Right padding needs no mask."""
    return F.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=query.shape[-3] != key.shape[-3]
    )


class Linear(nn.Linear):
    """A linear layer whose rows do not depend on how many rows come together, once its weights are frozen.

    The CPU's matrix kernels round differently for fewer than four rows a thread; multiples of eight never get there.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.requires_grad or x.device.type != "cpu":
            return F.linear(x, self.weight, self.bias)
        rows = x.reshape(-1, x.shape[-1])
        missing = -len(rows) % _ROWS
        if missing:
            rows = F.pad(rows, (0, 0, 0, missing))
        out = F.linear(rows, self.weight, self.bias)
        return (out[:-missing] if missing else out).view(*x.shape[:-1], -1)


class RMSNorm(nn.Module):
    """Root mean square norm over the last axis: float32 inside, the input's dtype out, then the learned scale."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight


def rotary_angles(positions: Tensor, head_dim: int, base: float) -> Tensor:
    """Angles `[*, T, head_dim / 2]` float32 of positions `[*, T]`: position * base ** (-2j / head_dim)."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    return positions.float().unsqueeze(-1) * base**-exponents


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on pairs (j, j + d/2), the NeoX convention; x `[..., d]`, cos and sin `[..., d / 2]`."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotate_pairs(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions on pairs (2j, 2j + 1), the GPT-J convention; x `[..., d]`, turns complex64 `[..., d / 2]`."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


@lru_cache
def depth_turns(depths: int, head_dim: int, base: float, device: torch.device) -> Tensor:
    """exp(i * angle) of depths 0..depths - 1, complex64 `[depths, head_dim / 2]`; kept: every frame asks."""
    with torch.inference_mode(False):  # or a table first made by a search could not be trained with later
        angles = rotary_angles(torch.arange(depths, device=device), head_dim, base)
        return torch.polar(torch.ones_like(angles), angles)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[*, T, heads * d] -> [*, heads, T, d]`."""
    return x.reshape(*x.shape[:-1], heads, -1).transpose(-2, -3)


def merge_heads(x: Tensor) -> Tensor:
    """`[*, heads, T, d] -> [*, T, heads * d]`."""
    return x.transpose(-2, -3).flatten(-2)


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


class LocalAttention(nn.Module):
    """Self-attention over depth; `c_attn` holds query, key and value in that order, as plain linear layers."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = Linear(hidden, 3 * hidden)
        self.c_proj = Linear(hidden, hidden)

    def forward(self, x: Tensor, turns: Tensor, layer: int, attend: Attend) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.c_attn(x).chunk(3, dim=-1))
        attended = attend(layer, rotate_pairs(query, turns), rotate_pairs(key, turns), value)
        return cast(Tensor, self.c_proj(merge_heads(attended)))


class LocalFeedForward(nn.Module):
    """fc_out(silu(fc_in(x)))."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.fc_in = Linear(hidden, inner)
        self.fc_out = Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc_out(F.silu(self.fc_in(x))))


class LocalBlock(nn.Module):
    """Pre-norm transformer block of the depth decoder, with biased layer norms."""

    def __init__(self, hidden: int, config: LocalConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.attn = LocalAttention(hidden, config.heads)
        self.ln_2 = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.mlp = LocalFeedForward(hidden, config.feed_forward)

    def forward(self, x: Tensor, turns: Tensor, layer: int, attend: Attend) -> Tensor:
        x = x + self.attn(self.ln_1(x), turns, layer, attend)
        return cast(Tensor, x + self.mlp(self.ln_2(x)))


class LocalDecoder(nn.Module):
    """The transformer over the codebooks of one frame; rotary position = depth."""

    def __init__(self, hidden: int, depths: int, config: LocalConfig) -> None:
        super().__init__()
        self.h = nn.ModuleList(LocalBlock(hidden, config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(hidden, eps=config.norm_eps)
        self.depths, self.head_dim, self.rope_base = depths, hidden // config.heads, config.rope_base

    def forward(self, x: Tensor, first: int, attend: Attend) -> Tensor:
        """Inputs x `[*, D, H]` at depths first..first + D - 1 -> hidden `[*, D, H]` after the final norm."""
        turns = depth_turns(self.depths, self.head_dim, self.rope_base, x.device)[first : first + x.shape[-2]]
        for index, block in enumerate(self.h):
            x = block(x, turns, index, attend)
        return cast(Tensor, self.ln_f(x))


class MossNetwork(nn.Module):
    """All parameters of a checkpoint. Tied pairs (text head, audio heads) are one Parameter under two names.

    H = hidden width, q = codebooks, V_k = size of codebook k. Leading axes are free; float32 weights run as they are
    or under bfloat16 autocast.
    """

    def __init__(self, config: MossConfig) -> None:
        super().__init__()
        hidden = config.backbone.hidden
        self.config = config
        self.transformer = GlobalDecoder(config.backbone)
        self.local_transformer = LocalDecoder(hidden, config.books, config.local)
        self.audio_embeddings = nn.ModuleList(nn.Embedding(size, hidden) for size in config.codebook_sizes)
        self.audio_lm_heads = nn.ModuleList(Linear(hidden, size, bias=False) for size in config.codebook_sizes)
        self.text_lm_head = Linear(hidden, config.backbone.vocabulary, bias=False)
        if config.text_head_mode == "binary":
            self.local_text_lm_head = Linear(hidden, 2, bias=False)
        self.tie()

    def tie(self) -> None:
        """Make every head share its embedding's Parameter; needed again after parameters have been replaced."""
        self.text_lm_head.weight = self.transformer.embed_tokens.weight
        for head, embedding in zip(self.audio_lm_heads, self.audio_embeddings, strict=True):
            head.weight = embedding.weight

    def embed(self, rows: Tensor) -> Tensor:
        """Rows `[*, 1 + q]` int64 (text id, then codes) -> `[*, H]`; a pad code adds nothing."""
        total: Tensor = self.transformer.embed_tokens(rows[..., 0])
        for book, embedding in enumerate(self.audio_embeddings):
            codes = rows[..., 1 + book]
            spoken = codes != self.config.audio_pad
            total = total + embedding(codes * spoken) * spoken.unsqueeze(-1)
        return total

    def depth_hidden(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """Teacher-forced depth decoder: global hidden `[*, H]` and the frame's codes `[*, q]` -> `[*, q, H]`.

        Depth 0 reads the global hidden as it is, depth k + 1 the embedding of code k; the last code is never read.
        """
        depth = self.config.books
        embedded = [self.audio_embeddings[book](codes[..., book]) for book in range(depth - 1)]
        inputs = torch.stack([hidden, *embedded], dim=-2)
        return cast(Tensor, self.local_transformer(inputs, 0, causal_attention))

    def audio_logits(self, local_hidden: Tensor) -> list[Tensor]:
        """Depth hidden `[*, q, H]` -> one `[*, V_k]` per codebook: head k reads depth k."""
        return [head(local_hidden[..., book, :]) for book, head in enumerate(self.audio_lm_heads)]

    def stop_logits(self, local_hidden: Tensor) -> Tensor:
        """Depth hidden `[*, q, H]` -> `[*, 2]` from depth 0, in the order continue, stop."""
        first = local_hidden[..., 0, :]
        if self.config.text_head_mode == "binary":
            return cast(Tensor, self.local_text_lm_head(first))
        return cast(Tensor, self.text_lm_head(first)[..., self.stop_candidates()])

    def stop_candidates(self) -> Sequence[int]:
        """Text ids of the two outcomes of the stop decision, continue first."""
        return [self.config.ids.assistant_slot, self.config.ids.audio_end]
