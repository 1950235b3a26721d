"""Sizes of a VoiceCLAP-small network, read from its `config.json`. Knows no tensor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


class CheckpointError(ValueError):
    """A file of the model or of a predictor is missing, damaged, or does not belong to the others."""


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
            CheckpointError: there is no such file, it is no JSON object, or a field is missing or out of range.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(f"{path} does not exist: a model folder needs it beside model.safetensors") from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read as JSON ({error}): download it again") from None
        if not isinstance(values, dict):
            raise CheckpointError(f"{path} holds a {type(values).__name__}: an object with sizes is needed")
        return cls._from(values, path)

    @classmethod
    def _from(cls, values: dict[str, Any], path: Path) -> Self:
        defaults = {"text_layer_norm_eps": 1e-12}
        read: dict[str, Any] = {}
        for name in cls.__dataclass_fields__:
            if name == "text_proj_hidden":
                defaults[name] = (read["text_hidden_dim"] + read["embed_dim"]) // 2
            value = values.get(name, defaults.get(name))
            kind = float if name == "text_layer_norm_eps" else int
            if type(value) is not kind or value <= 0:
                found = "is missing" if value is None else f"is {value!r}"
                raise CheckpointError(
                    f"{path}: {name} {found}; a number above 0 is needed. Only the architecture of VoiceCLAP-small "
                    "and -commercial is implemented"
                )
            read[name] = value
        for width, parts in (("n_state", "n_head"), ("text_hidden_dim", "text_num_heads")):
            if read[width] % read[parts]:
                raise CheckpointError(f"{path}: {width} {read[width]} cannot be divided by {parts} {read[parts]}")
        for name in ("n_ctx", "n_state"):
            if read[name] % 2:
                raise CheckpointError(f"{path}: {name} is {read[name]}; an even number is needed")
        return cls(**read)
