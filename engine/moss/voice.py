"""Puts a MOSS-TTS-Local voice together: its network, its codec, its tokenizer and its prompts.

It does not know where the folders come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from codec.checkpoints.errors import ConfigError
from engine.moss.checkpoint import load_network
from engine.moss.codecs import check_codec
from engine.moss.config import MossConfig
from engine.moss.engine import MossEngine
from engine.moss.lora import Adapter
from engine.moss.references import Recording
from engine.moss.text import MossPrompt
from engine.moss.tokenizer import load_tokenizer
from search.protocols import Codec

_START = "<|im_start|>"


class EncodingCodec(Codec, Protocol):
    """A codec that also encodes, such as `codec.moss.MossCodec`."""

    @property
    def book_sizes(self) -> Sequence[int]:
        """Codes in each book."""

    def encode(self, pcm: np.ndarray | Tensor, sample_rate: int) -> Tensor:
        """A recording to codes int64 `[T, len(book_sizes)]`; alone, in float32, and remembered by its content."""


def load_moss(
    folder: Path,
    *,
    name: str,
    codec: EncodingCodec,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    adapter: Adapter | None = None,
) -> MossEngine:
    """The voice in a folder, with an adapter merged into it if given.

    Raises:
        ValueError: the folder's files cannot be used, or the codec is not the one that the voice was trained with.
    """
    path = folder / "config.json"
    config = MossConfig.load(path)
    check_codec(path, config, codec.book_sizes, codec.sample_rate)

    def encode(recording: Recording) -> Tensor:
        return codec.encode(recording.pcm, recording.sample_rate)

    tokenize = load_tokenizer(folder)
    if (start := tokenize(_START)) != [config.ids.im_start]:
        raise ConfigError(
            f"{path}: im_start_token_id is {config.ids.im_start}, the tokenizer beside it reads {_START} as {start}: "
            "they belong to different checkpoints"
        )
    network = load_network(folder, dtype, device, adapter=adapter)
    return MossEngine(network, codec, name=name, prompts=MossPrompt(config, tokenize, encode))
