"""Reads and writes the `config.json` of a MOSS-TTS-Nano checkpoint, whose two decoders share one `gpt2_config`.

It refuses values that the network does not implement. Nothing that the arithmetic depends on has a default: the
defaults of the released code are those of another checkpoint. It does not know the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from codec.checkpoints.errors import ConfigError
from codec.checkpoints.fields import Fields
from engine.moss.config import GlobalConfig, LocalConfig, MossConfig, SpecialIds, read_books

MODEL_TYPE = "moss_tts_nano"
ARCHITECTURE = "global_local_transformer"
_USUAL_CODEC = "OpenMOSS-Team/MOSS-Audio-Tokenizer-Nano"


@dataclass(frozen=True)
class NanoConfig(MossConfig):
    """What the network and the loop need to know about a checkpoint; `load` and `from_json` read Nano's field names.

    Of `backbone`, `kv_heads` equals `heads`, and `norm_eps` is that of biased layer norms. The stop decision is made by
    two rows of the text head.
    """

    text_head_mode: str = "full_vocab"
    codec: str = _USUAL_CODEC

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build from the parsed JSON object; unknown fields are ignored, unimplemented values raise `ConfigError`."""
        top = Fields(raw)
        top.one_of("model_type", MODEL_TYPE)
        top.one_of("model_architecture", ARCHITECTURE, default=ARCHITECTURE)
        backbone = _read_backbone(top.nested("gpt2_config"))
        return cls(
            backbone=backbone,
            local=LocalConfig(
                layers=top.integer("local_transformer_layers"),
                heads=backbone.heads,
                feed_forward=backbone.feed_forward,
                rope_base=backbone.rope_theta,
                norm_eps=backbone.norm_eps,
            ),
            ids=SpecialIds.read(top),
            codebook_sizes=_read_books(top),
            audio_pad=top.integer("audio_pad_token_id"),
            sample_rate=top.integer("audio_tokenizer_sample_rate"),
            codec=top.text("audio_tokenizer_pretrained_name_or_path", default=_USUAL_CODEC),
            tied=top.flag("tie_word_embeddings", default=True),
        )

    def to_json(self) -> dict[str, Any]:
        """The object that `from_json` reads back unchanged, under the public field names."""
        gpt2 = {
            "model_type": "gpt2",
            "vocab_size": self.backbone.vocabulary,
            "n_embd": self.backbone.hidden,
            "n_layer": self.backbone.layers,
            "n_head": self.backbone.heads,
            "n_inner": self.backbone.feed_forward,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": self.backbone.norm_eps,
            "position_embedding_type": "rope",
            "rope_base": self.backbone.rope_theta,
            "scale_attn_weights": True,
        }
        return {
            "model_type": MODEL_TYPE,
            "architectures": ["MossTTSNanoForCausalLM"],
            "model_architecture": ARCHITECTURE,
            "n_vq": self.books,
            "audio_vocab_size": max(self.codebook_sizes),
            "audio_codebook_sizes": list(self.codebook_sizes),
            "audio_pad_token_id": self.audio_pad,
            **self.ids.to_json(),
            "audio_tokenizer_sample_rate": self.sample_rate,
            "audio_tokenizer_pretrained_name_or_path": self.codec,
            "local_transformer_layers": self.local.layers,
            "tie_word_embeddings": self.tied,
            "gpt2_config": gpt2,
        }


def _read_backbone(fields: Fields) -> GlobalConfig:
    fields.one_of("activation_function", "gelu_new")
    fields.one_of("position_embedding_type", "rope")
    fields.one_of("scale_attn_weights", True, default=True)
    fields.one_of("scale_attn_by_inverse_layer_idx", False, default=False)
    fields.one_of("add_cross_attention", False, default=False)
    hidden, heads = fields.integer("n_embd"), fields.integer("n_head")
    if heads < 1 or hidden % heads:
        raise ConfigError(f"{fields.prefix}n_embd is {hidden}, which n_head = {heads} does not divide")
    base, norm_eps = fields.positive("rope_base"), fields.positive("layer_norm_epsilon")
    return GlobalConfig(
        hidden=hidden,
        layers=fields.integer("n_layer"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        feed_forward=fields.integer("n_inner", default=4 * hidden),
        vocabulary=fields.integer("vocab_size"),
        rope_theta=base,
        norm_eps=norm_eps,
    )


def _read_books(top: Fields) -> tuple[int, ...]:
    sizes, widest = read_books(top), top.integer("audio_vocab_size")
    if sizes and widest < max(sizes):
        raise ConfigError(f"audio_vocab_size is {widest}: it must be at least the largest of audio_codebook_sizes")
    return sizes
