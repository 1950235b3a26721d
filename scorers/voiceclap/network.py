"""The two towers of VoiceCLAP-small: a Whisper encoder for audio, a BERT for words, into one space of unit vectors.

Modules are named as in open_clip, whose code family VoiceCLAP was trained in, so that its checkpoints load by name.
Written from the published description of the architecture: it does not know where the weights come from.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scorers.voiceclap.config import VoiceClapConfig
from scorers.voiceclap.features import BINS, HOP, log_mel


class VoiceClap(nn.Module):
    """Both towers and the mel filters [n_mels, 201], which are no parameter but part of the model."""

    mel_filters: Tensor

    def __init__(self, config: VoiceClapConfig, *, biased_audio_projection: bool = True) -> None:
        super().__init__()
        self.config = config
        self.samples = 2 * HOP * config.n_ctx
        self.audio = AudioTower(config, biased_audio_projection)
        self.text = TextTower(config)
        self.register_buffer("mel_filters", torch.zeros(config.n_mels, BINS), persistent=False)

    def embed_audio(self, waves: Tensor) -> Tensor:
        """Float32 [B, samples] at 16 kHz, already padded -> unit vectors [B, embed_dim]."""
        return self.embed_features(log_mel(waves, self.mel_filters))

    def embed_features(self, features: Tensor) -> Tensor:
        """Log-mel features [B, n_mels, 2 * n_ctx] -> unit vectors [B, embed_dim]."""
        return F.normalize(self.audio(features), dim=-1)

    def embed_text(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids and mask (1 where there is a token), int64 [B, L] -> unit vectors [B, embed_dim]."""
        return F.normalize(self.text(ids, mask), dim=-1)


class AudioTower(nn.Module):
    """Encoder steps, averaged over time, through an MLP."""

    def __init__(self, config: VoiceClapConfig, biased: bool) -> None:
        super().__init__()
        width = config.embed_dim
        self.encoder = AudioEncoder(config)
        self.proj = nn.Sequential(nn.Linear(width, width, bias=biased), nn.GELU(), nn.Linear(width, width, bias=biased))

    def forward(self, features: Tensor) -> Tensor:
        embedding: Tensor = self.proj(self.encoder(features).mean(1))
        return embedding


class AudioEncoder(nn.Module):
    """Whisper's encoder with steps averaged in pairs before the last norm, and a linear map after it."""

    positional_embedding: Tensor

    def __init__(self, config: VoiceClapConfig) -> None:
        super().__init__()
        width = config.n_state
        self.conv1 = nn.Conv1d(config.n_mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("positional_embedding", torch.zeros(config.n_ctx, width))
        self.blocks = nn.ModuleList([AudioBlock(width, config.n_head) for _ in range(config.n_layer)])
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Linear(width, config.embed_dim)

    def forward(self, features: Tensor) -> Tensor:
        """[B, n_mels, 2 * n_ctx] -> [B, n_ctx / 2, embed_dim]."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(features)))).transpose(1, 2)  # [B, n_ctx, n_state]
        x = x + self.positional_embedding
        for block in self.blocks:
            x = block(x)
        x = x.view(len(x), -1, 2, x.shape[-1]).mean(2)
        steps: Tensor = self.proj(self.ln_post(x))
        return steps


class AudioBlock(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = AudioAttention(width, heads)
        self.attn_ln = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.mlp_ln = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.attn_ln(x))
        out: Tensor = x + self.mlp(self.mlp_ln(x))
        return out


class AudioAttention(nn.Module):
    """Attention over all steps; as in Whisper, the key projection has no bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(_attended(self.query(x), self.key(x), self.value(x), self.heads))
        return out


class TextTower(nn.Module):
    """BERT without its pooler, averaged over the tokens, through an MLP without biases."""

    def __init__(self, config: VoiceClapConfig) -> None:
        super().__init__()
        hidden = config.text_proj_hidden
        self.transformer = Bert(config)
        self.proj = nn.Sequential(
            nn.Linear(config.text_hidden_dim, hidden, bias=False),
            nn.GELU(),
            nn.Linear(hidden, config.embed_dim, bias=False),
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.transformer(ids, mask)
        weight = mask[..., None].to(states.dtype)
        embedding: Tensor = self.proj((states * weight).sum(1) / weight.sum(1))
        return embedding


class Bert(nn.Module):
    """BERT (Devlin et al., 2019) with one segment, under the names that transformers gives its parts."""

    def __init__(self, config: VoiceClapConfig) -> None:
        super().__init__()
        width, eps = config.text_hidden_dim, config.text_layer_norm_eps
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.text_vocab_size, width),
                "position_embeddings": nn.Embedding(config.text_max_position_embeddings, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=eps),
            }
        )
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList([BertLayer(config) for _ in range(config.text_num_layers)])}
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Int64 [B, L] each -> [B, L, text_hidden_dim]."""
        part = self.embeddings
        places = torch.arange(ids.shape[1], device=ids.device)
        segment = part["token_type_embeddings"](torch.zeros_like(ids))
        x: Tensor = part["word_embeddings"](ids) + part["position_embeddings"](places) + segment
        x = part["LayerNorm"](x)
        seen = mask.bool()[:, None, None, :]  # [B, 1, 1, L], over heads and queries
        layers = self.encoder["layer"]
        assert isinstance(layers, nn.ModuleList)
        for layer in layers:
            x = layer(x, seen)
        return x


class BertLayer(nn.Module):
    """A post-norm transformer layer."""

    def __init__(self, config: VoiceClapConfig) -> None:
        super().__init__()
        width, inner, eps = config.text_hidden_dim, config.text_intermediate_size, config.text_layer_norm_eps
        self.heads = config.text_num_heads
        self.attention = nn.ModuleDict(
            {
                "self": nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}),
                "output": _dense_and_norm(width, width, eps),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = _dense_and_norm(inner, width, eps)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        part, after = self.attention["self"], self.attention["output"]
        assert isinstance(part, nn.ModuleDict)
        assert isinstance(after, nn.ModuleDict)
        heard = _attended(part["query"](x), part["key"](x), part["value"](x), self.heads, seen)
        x = after["LayerNorm"](x + after["dense"](heard))
        inner = F.gelu(self.intermediate["dense"](x))
        out: Tensor = self.output["LayerNorm"](x + self.output["dense"](inner))
        return out


def _dense_and_norm(size: int, width: int, eps: float) -> nn.ModuleDict:
    return nn.ModuleDict({"dense": nn.Linear(size, width), "LayerNorm": nn.LayerNorm(width, eps=eps)})


def _attended(query: Tensor, key: Tensor, value: Tensor, heads: int, seen: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention over [B, T, width] in so many heads; `seen` is bool, [B, 1, 1, T]."""
    query, key, value = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, seen).transpose(1, 2).flatten(2)
