"""Reads and writes the `config.json` of a MOSS-TTS-Local checkpoint.

It knows the fields on which the arithmetic depends and refuses values that the network does not implement.
It does not know the weights, nor which codec the frame codes belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from codec.checkpoints.errors import ConfigError
from codec.checkpoints.fields import Fields

MODEL_TYPE = "moss_tts_local"
TEXT_HEAD_MODES = ("binary", "full_vocab")
BUILTIN_CODEC = "builtin"
_USUAL_CODEC = "OpenMOSS-Team/MOSS-Audio-Tokenizer-v2"


@dataclass(frozen=True)
class GlobalConfig:
    """Sizes of the global decoder, a Qwen3-style transformer over frames; all in elements."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    rope_theta: float
    norm_eps: float


@dataclass(frozen=True)
class LocalConfig:
    """Sizes of the depth decoder, a GPT-2-style transformer over the codebooks of a frame, as wide as the global."""

    layers: int
    heads: int
    feed_forward: int
    rope_base: float
    norm_eps: float


@dataclass(frozen=True)
class SpecialIds:
    """Text ids with a meaning of their own; `assistant_slot` is the text column of a frame that is spoken."""

    pad: int
    im_start: int
    im_end: int
    audio_start: int
    audio_end: int
    user_slot: int
    assistant_slot: int

    @classmethod
    def read(cls, top: Fields) -> Self:
        """From the fields of a `config.json`."""
        return cls(
            pad=top.integer("pad_token_id"),
            im_start=top.integer("im_start_token_id"),
            im_end=top.integer("im_end_token_id"),
            audio_start=top.integer("audio_start_token_id"),
            audio_end=top.integer("audio_end_token_id"),
            user_slot=top.integer("audio_user_slot_token_id"),
            assistant_slot=top.first_integer("audio_assistant_slot_token_id", "audio_assistant_gen_slot_token_id"),
        )

    def to_json(self) -> dict[str, int]:
        """The fields that `read` reads back."""
        return {
            "pad_token_id": self.pad,
            "im_start_token_id": self.im_start,
            "im_end_token_id": self.im_end,
            "audio_start_token_id": self.audio_start,
            "audio_end_token_id": self.audio_end,
            "audio_user_slot_token_id": self.user_slot,
            "audio_assistant_slot_token_id": self.assistant_slot,
        }


@dataclass(frozen=True)
class MossConfig:
    """Everything the network and the generation loop need to know about a checkpoint.

    `codec` names what turns the codes into sound: a hub id, or `BUILTIN_CODEC`. `tied`: every head is the embedding of
    the same ids.
    """

    backbone: GlobalConfig
    local: LocalConfig
    ids: SpecialIds
    codebook_sizes: tuple[int, ...]
    audio_pad: int
    sample_rate: int
    text_head_mode: str = "binary"
    codec: str = BUILTIN_CODEC
    tied: bool = True

    def __post_init__(self) -> None:
        if not self.codebook_sizes or min(self.codebook_sizes) < 1:
            raise ConfigError(
                f"audio_codebook_sizes is {list(self.codebook_sizes)}: at least one positive size is needed"
            )
        if self.audio_pad < max(self.codebook_sizes):
            raise ConfigError(
                f"audio_pad_token_id is {self.audio_pad}, a real code of a book of {max(self.codebook_sizes)}: "
                "it must be at least the largest of audio_codebook_sizes"
            )
        if self.text_head_mode not in TEXT_HEAD_MODES:
            raise ConfigError(
                f"local_text_head_mode is {self.text_head_mode!r}: allowed are {', '.join(TEXT_HEAD_MODES)}"
            )
        for name, value in asdict(self.ids).items():
            if not 0 <= value < self.backbone.vocabulary:
                raise ConfigError(f"the id of {name} is {value}, outside the vocabulary of {self.backbone.vocabulary}")
        _require_divisible("num_attention_heads", self.backbone.heads, "num_key_value_heads", self.backbone.kv_heads)
        _require_divisible("hidden_size", self.backbone.hidden, "gpt2_config.n_head", self.local.heads)
        for field, width in (("head_dim", self.backbone.head_dim), ("n_embd / n_head", self.local_head_dim)):
            if width % 2:
                raise ConfigError(f"{field} is {width}: rotary positions need an even width")

    @property
    def books(self) -> int:
        """Codebooks of a frame, `q` in shapes."""
        return len(self.codebook_sizes)

    @property
    def local_head_dim(self) -> int:
        """Width of one head of the depth decoder."""
        return self.backbone.hidden // self.local.heads

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a `config.json`; every problem is a `ConfigError` that names the file and the field."""
        fields = Fields.read(path, "a checkpoint folder needs config.json beside its weights")
        try:
            return cls.from_json(fields.values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build from the parsed JSON object; unknown fields are ignored, unimplemented values raise `ConfigError`."""
        top = Fields(raw)
        top.one_of("model_type", MODEL_TYPE)
        tied = top.flag("tie_word_embeddings", default=True)
        backbone = _read_backbone(_backbone_fields(raw), tied)
        top.one_of("hidden_size", backbone.hidden, default=backbone.hidden)
        top.one_of("local_hidden_size", backbone.hidden, default=backbone.hidden)
        sizes = read_books(top)
        return cls(
            backbone=backbone,
            local=_read_local(top, top.nested("gpt2_config"), backbone.hidden, len(sizes)),
            ids=SpecialIds.read(top),
            codebook_sizes=sizes,
            audio_pad=top.first_integer("audio_pad_token_id", "audio_pad_code"),
            sample_rate=top.integer("sampling_rate"),
            text_head_mode=top.text("local_text_head_mode"),
            codec=top.text("audio_tokenizer_name_or_path", default=_USUAL_CODEC),
            tied=tied,
        )

    def to_json(self) -> dict[str, Any]:
        """The object that `from_json` reads back unchanged, under the public field names."""
        backbone = {
            "model_type": "qwen3",
            "hidden_size": self.backbone.hidden,
            "num_hidden_layers": self.backbone.layers,
            "num_attention_heads": self.backbone.heads,
            "num_key_value_heads": self.backbone.kv_heads,
            "head_dim": self.backbone.head_dim,
            "intermediate_size": self.backbone.feed_forward,
            "vocab_size": self.backbone.vocabulary,
            "rope_theta": self.backbone.rope_theta,
            "rms_norm_eps": self.backbone.norm_eps,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": self.tied,
        }
        local = {
            "model_type": "gpt2",
            "n_embd": self.backbone.hidden,
            "n_layer": self.local.layers,
            "n_head": self.local.heads,
            "n_inner": self.local.feed_forward,
            "n_positions": self.books + 1,
            "n_ctx": self.books + 1,
            "layer_norm_epsilon": self.local.norm_eps,
            "rope_base": self.local.rope_base,
            "position_embedding_type": "rope",
            "activation_function": "silu",
            "scale_attn_weights": True,
        }
        return {
            "model_type": MODEL_TYPE,
            "architectures": ["MossTTSLocalModel"],
            "n_vq": self.books,
            "audio_vocab_size": max(self.codebook_sizes),
            "audio_codebook_sizes": list(self.codebook_sizes),
            "audio_pad_token_id": self.audio_pad,
            **self.ids.to_json(),
            "sampling_rate": self.sample_rate,
            "audio_tokenizer_name_or_path": self.codec,
            "local_transformer_layers": self.local.layers,
            "local_text_head_mode": self.text_head_mode,
            "tie_word_embeddings": self.tied,
            "qwen3_config": backbone,
            "gpt2_config": local,
        }


def read_books(top: Fields) -> tuple[int, ...]:
    """Sizes of the codebooks; all alike unless the config says otherwise."""
    books = top.integer("n_vq")
    sizes = top.integers("audio_codebook_sizes", default=[top.integer("audio_vocab_size")] * books)
    if len(sizes) != books:
        raise ConfigError(f"audio_codebook_sizes has {len(sizes)} entries, n_vq says {books}")
    return tuple(sizes)


def _backbone_fields(raw: Mapping[str, Any]) -> Fields:
    copies = {name: raw[name] for name in ("qwen3_config", "language_config") if raw.get(name) is not None}
    if len(copies) == 2 and copies["qwen3_config"] != copies["language_config"]:
        raise ConfigError("qwen3_config and language_config differ: they must be copies of each other")
    name = "language_config" if "language_config" in copies and "qwen3_config" not in copies else "qwen3_config"
    return Fields(raw).nested(name)


def _read_backbone(fields: Fields, tied: bool) -> GlobalConfig:
    fields.one_of("hidden_act", "silu", default="silu")
    fields.one_of("attention_bias", False, default=False)
    fields.one_of("use_sliding_window", False, default=False)
    if tied:  # the whole checkpoint's word counts: the backbone by itself has no head to tie
        fields.one_of("tie_word_embeddings", True, default=True)
    layers = fields.integer("num_hidden_layers")
    kinds = fields.values.get("layer_types") or []
    if any(kind != "full_attention" for kind in kinds):
        raise ConfigError(f"{fields.prefix}layer_types is {kinds!r}: only 'full_attention' is implemented")
    return GlobalConfig(
        hidden=fields.integer("hidden_size"),
        layers=layers,
        heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim"),
        feed_forward=fields.integer("intermediate_size"),
        vocabulary=fields.integer("vocab_size"),
        rope_theta=_read_rope_theta(fields),
        norm_eps=fields.positive("rms_norm_eps"),
    )


def _read_rope_theta(fields: Fields) -> float:
    """`rope_theta` beside the sizes, or inside the rotary object where newer transformers releases put it."""
    thetas = [fields.positive("rope_theta")] if fields.values.get("rope_theta") is not None else []
    for name in ("rope_parameters", "rope_scaling"):
        if fields.values.get(name) is None:
            continue
        rotary = fields.nested(name)
        rotary.one_of("rope_type", "default", default=rotary.values.get("type", "default"))
        rotary.one_of("partial_rotary_factor", 1.0, default=1.0)
        if rotary.values.get("rope_theta") is not None:
            thetas.append(rotary.positive("rope_theta"))
    if len(set(thetas)) > 1:
        raise ConfigError(f"{fields.prefix}rope_theta is written twice, as {thetas}: the values must agree")
    return thetas[0] if thetas else fields.positive("rope_theta")


def _read_local(top: Fields, fields: Fields, hidden: int, books: int) -> LocalConfig:
    fields.one_of("n_embd", hidden)
    fields.one_of("activation_function", "silu")
    fields.one_of("position_embedding_type", "rope")
    fields.one_of("scale_attn_weights", True, default=True)
    fields.one_of("scale_attn_by_inverse_layer_idx", False, default=False)
    positions = fields.integer("n_positions", default=books + 1)
    if positions < books:
        raise ConfigError(f"{fields.prefix}n_positions is {positions}: n_vq = {books} depth positions are needed")
    return LocalConfig(
        layers=top.integer("local_transformer_layers"),
        heads=fields.integer("n_head"),
        feed_forward=fields.integer("n_inner", default=4 * hidden),
        rope_base=fields.positive("rope_base"),
        norm_eps=fields.positive("layer_norm_epsilon"),
    )


def _require_divisible(name: str, value: int, divisor_name: str, divisor: int) -> None:
    if divisor < 1 or value % divisor:
        raise ConfigError(f"{name} is {value}, which {divisor_name} = {divisor} does not divide")
