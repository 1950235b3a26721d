"""The style that a request asks for, as an embedding of its words. Knows no audio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from scorers.voiceclap.network import VoiceClap
from search.request import SpeechRequest

TOKENIZER = "tokenizer.json"
QueryField = Literal["instruction", "text"]
QUERY_FIELDS: tuple[QueryField, ...] = get_args(QueryField)


@dataclass(frozen=True)
class Query:
    """What a clip is compared with: a unit vector [embed_dim] on the CPU, or the reason why there is none."""

    embedding: Tensor | None
    reason: str = ""


Encode = Callable[[str], list[int]]


def load_tokenizer(folder: Path, config_tokens: int) -> Encode:
    """Words to token ids with the model folder's own tokenizer, at most `config_tokens`; the rest is cut.

    Raises:
        CheckpointError: the file is damaged.
        ModuleNotFoundError: the package `tokenizers` is not installed.
    """
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more precise
        raise CheckpointError(f"{path} cannot be read ({error}): download it again") from None
    tokenizer.enable_truncation(config_tokens)
    tokenizer.no_padding()
    return lambda words: list(tokenizer.encode(words).ids)


def query_of(request: SpeechRequest, field: QueryField, encode: Encode, network: VoiceClap) -> Query:
    """The embedding of the request's words in `field`.

    Raises:
        CheckpointError: the tokenizer knows tokens that the network does not.
    """
    words: str | None = getattr(request, field)
    if not words or not words.strip():
        return Query(None, f"style: the request has no {field}")
    ids = encode(words)
    vocabulary = network.config.text_vocab_size
    if max(ids, default=0) >= vocabulary:
        raise CheckpointError(
            f"{TOKENIZER} gives token {max(ids)}, the network knows {vocabulary}: they are of different models"
        )
    if not ids:
        return Query(None, f"style: no token in the request's {field}")
    tokens = torch.tensor([ids], device=network.mel_filters.device)
    with torch.inference_mode():
        return Query(network.embed_text(tokens, torch.ones_like(tokens))[0].cpu())
