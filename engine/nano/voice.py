"""Puts a MOSS-TTS-Nano voice together: its network, its codec, its tokenizer and its prompts.

The release's own command samples codes with temperature 0.8, top-p 0.95, top-k 25 and repetition penalty 1.2; whoever
wants that says so in the settings of a search. It does not know where the folders come from.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from codec.checkpoints.errors import ConfigError
from engine.moss.engine import MossEngine
from engine.moss.references import Recording
from engine.moss.voice import EncodingCodec
from engine.nano.checkpoint import load_network
from engine.nano.config import NanoConfig
from engine.nano.prompt import NanoPrompt
from engine.nano.tokenizer import load_tokenizer


def load_nano(
    folder: Path,
    *,
    name: str,
    codec: EncodingCodec,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> MossEngine:
    """The voice in a folder. A codec that was loaded with fewer books makes it speak only so many: faster, and coarser.

    Raises:
        ValueError: the folder's files cannot be used, or the codec is not the one that the voice was trained with.
    """
    path = folder / "config.json"
    config = NanoConfig.load(path)
    spoken = _spoken_books(path, config, codec)

    def encode(recording: Recording) -> Tensor:
        codes = codec.encode(recording.pcm, recording.sample_rate)
        return F.pad(codes, (0, config.books - spoken), value=config.audio_pad)

    tokenize = load_tokenizer(folder)
    network = load_network(folder, dtype, device, spoken_books=spoken)
    return MossEngine(network, codec, name=name, prompts=NanoPrompt(config, tokenize, encode))


def _spoken_books(path: Path, config: NanoConfig, codec: EncodingCodec) -> int:
    sizes = tuple(codec.book_sizes)
    cure = f"they were not trained together; give {config.codec}"
    if not sizes or sizes != config.codebook_sizes[: len(sizes)]:
        raise ConfigError(
            f"{path}: audio_codebook_sizes is {list(config.codebook_sizes)}, the codec's books have {list(sizes)} "
            f"codes: {cure}"
        )
    if codec.sample_rate != config.sample_rate:
        raise ConfigError(
            f"{path}: audio_tokenizer_sample_rate is {config.sample_rate}, the codec's is {codec.sample_rate}: {cure}"
        )
    return len(sizes)
