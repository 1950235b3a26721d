"""Sizes of a VoiceCLAP-small network, read from its `config.json`. Knows no tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from codec.checkpoints.errors import ConfigError
from codec.checkpoints.fields import Fields

MODELS = "VoiceCLAP-small and -commercial"


@dataclass(frozen=True)
class VoiceClapConfig:
    """Fields of `config.json` under their own names; those of the text tower begin with `text_`.

    Attributes:
        n_mels: mel bands of a feature frame.
        n_ctx: encoder steps of 20 ms, even: the network always hears `n_ctx * 320` samples, 30 s where it is 1500.
        n_state, n_head, n_layer: width, attention heads and blocks of the audio encoder.
        embed_dim: width of the embedding that both towers share.
        text_proj_hidden: width inside the text projection, halfway between `text_hidden_dim` and `embed_dim`
            unless given.
    """

    n_mels: int
    n_ctx: int
    n_state: int
    n_head: int
    n_layer: int
    embed_dim: int
    text_hidden_dim: int
    text_intermediate_size: int
    text_num_layers: int
    text_num_heads: int
    text_vocab_size: int
    text_max_position_embeddings: int
    text_layer_norm_eps: float
    text_proj_hidden: int

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check; unknown fields are left alone.

        Raises:
            ConfigError: there is no such file, it is no JSON object, or a field is missing or out of range.
        """
        fields = Fields.read(path, "a model folder needs it beside its weights")
        try:
            config = cls._from(fields)
        except ConfigError as error:
            raise ConfigError(f"{error}. Only the architecture of {MODELS} is implemented") from None
        for width, parts in (("n_state", "n_head"), ("text_hidden_dim", "text_num_heads")):
            if getattr(config, width) % getattr(config, parts):
                raise fields.error(width, f"it cannot be divided by {parts}, which is {getattr(config, parts)}")
        for name in ("n_ctx", "n_state"):
            if getattr(config, name) % 2:
                raise fields.error(name, "an even number is needed")
        return config

    @classmethod
    def _from(cls, fields: Fields) -> Self:
        derived = ("text_layer_norm_eps", "text_proj_hidden")
        sizes = {name: fields.size(name) for name in cls.__dataclass_fields__ if name not in derived}
        halfway = (sizes["text_hidden_dim"] + sizes["embed_dim"]) // 2
        return cls(
            **sizes,
            text_layer_norm_eps=fields.positive("text_layer_norm_eps", default=1e-12),
            text_proj_hidden=fields.size("text_proj_hidden", default=halfway),
        )
