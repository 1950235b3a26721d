"""The networks of MOSS-Audio-Tokenizer: windowed causal transformers at several rates, with patches between them.

Attention is an argument and memory the caller's, so one network serves whole recordings and forked streams. Modules
carry the names of the public checkpoints. It does not know codes, nor what the samples sound like.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from codec.moss.config import ModuleConfig, PatchConfig, TransformerConfig
from search.state import Attend, Step


class Fold(nn.Module):
    """[*, T * size, C] to [*, T, C * size]: channel c at offset o becomes channel c * size + o."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-2], -1, self.size, x.shape[-1]).transpose(-1, -2).flatten(-2)


class Unfold(nn.Module):
    """[*, T, C * size] to [*, T * size, C], the inverse of `Fold`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], -1, self.size).transpose(-1, -2).flatten(-3, -2)


class Scale(nn.Module):
    """A learned factor for every channel of a residual branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class SelfAttention(nn.Module):
    """Rotary attention; what a query may see is the caller's `attend`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, layer: int, turn: Tensor, attend: Attend) -> Tensor:
        parts = self.in_proj(x).unflatten(-1, (3, self.heads, -1))  # [*, T, 3, H, d]
        query, key, value = (part.transpose(-2, -3) for part in parts.unbind(-3))  # [*, H, T, d]
        mixed = attend(layer, rotate(query, turn), rotate(key, turn), value)
        return self.out_proj(mixed.transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and a feed-forward net. The residual is float32 whatever the weights are.

    Branches are scaled down so far that a residual in half precision would swallow them.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.self_attn = SelfAttention(config.width, config.heads)
        self.ffn = nn.Sequential(
            nn.Linear(config.width, config.feed_forward, bias=False),
            nn.GELU(),
            nn.Linear(config.feed_forward, config.width, bias=False),
        )
        self.layer_scale_1, self.layer_scale_2 = Scale(config.width), Scale(config.width)

    def forward(self, x: Tensor, layer: int, turn: Tensor, attend: Attend) -> Tensor:
        dtype = self.self_attn.in_proj.weight.dtype
        x = x + self.layer_scale_1(self.self_attn(self.norm1(x).to(dtype), layer, turn, attend))
        return x + self.layer_scale_2(self.ffn(self.norm2(x).to(dtype)))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """The layers, which share their rotary angles."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim, self.max_period = config.head_dim, config.max_period
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def forward(self, x: Tensor, step: Step) -> Tensor:
        turn = rotation(step.positions, self.head_dim, self.max_period).unsqueeze(-3)  # [*, 1, T, d / 2]
        for index, layer in enumerate(self.layers):
            x = layer(x, index, turn, step.attend)
        return x


class ProjectedTransformer(nn.Module):
    """Float32 [*, T, inputs] to float32 [*, T, outputs], by a transformer of another width."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.input_proj = _projection(config.inputs, config.width, config.bare)
        self.transformer = Transformer(config)
        self.output_proj = _projection(config.width, config.outputs, config.bare)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return _project(self.output_proj, self.transformer(_project(self.input_proj, x), step))


class Stack(nn.ModuleList):
    """The modules of an encoder or a decoder in their order."""

    def __init__(self, modules: Sequence[ModuleConfig], patch: type[Fold] | type[Unfold]) -> None:
        super().__init__(
            patch(module.size) if isinstance(module, PatchConfig) else ProjectedTransformer(module)
            for module in modules
        )

    def forward(self, x: Tensor, steps: Sequence[Step]) -> Tensor:
        """Float32 [*, T, C] through all modules; `steps` has one entry a transformer."""
        waiting = iter(steps)
        for module in self:
            x = module(x, next(waiting)) if isinstance(module, ProjectedTransformer) else module(x)
        return x


def rotation(positions: Tensor, head_dim: int, max_period: float) -> Tensor:
    """Rotary angles of positions [*, T] as unit complex numbers, complex64 [*, T, head_dim / 2]."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * max_period ** (-pairs / head_dim)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Turn pairs of neighbours in x [*, H, T, d] by `turn` [*, 1, T, d / 2]; computed in float32."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def _projection(inputs: int, outputs: int, bare: bool) -> nn.Linear | nn.Identity:
    return nn.Identity() if bare and inputs == outputs else nn.Linear(inputs, outputs, bias=False)


def _project(projection: nn.Module, x: Tensor) -> Tensor:
    if isinstance(projection, nn.Linear):
        return projection(x.to(projection.weight.dtype)).float()  # type: ignore[no-any-return]
    return x
