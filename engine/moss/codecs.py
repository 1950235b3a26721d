"""Where the codec of a checkpoint is, and whether the two were trained together. It does not know how a codec works."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from codec.checkpoints.errors import ConfigError
from codec.checkpoints.hub import located
from engine.moss.config import MossConfig

BESIDE = ("codec", "audio_tokenizer")
"""Folders inside a checkpoint's folder that may hold its codec."""

_FILES = ("*.json", "*.safetensors")


def codec_folder(folder: Path, config: MossConfig) -> Path:
    """The codec inside a checkpoint folder, or else what `audio_tokenizer_name_or_path` names: a folder or a hub id.

    Raises:
        ValueError: it is in none of these places.
    """
    for name in BESIDE:
        if (folder / name / "config.json").is_file():
            return folder / name
    try:
        return located(config.codec, _FILES)
    except ValueError as error:
        raise ValueError(
            f"the codec of {folder} is neither in {folder / BESIDE[0]} nor in {folder / BESIDE[1]}, and "
            f"audio_tokenizer_name_or_path cannot be used: {error}"
        ) from None


def check_codec(path: Path, config: MossConfig, book_sizes: Sequence[int], sample_rate: int) -> None:
    """Raise `ConfigError` naming `path`, the checkpoint's config, where a codec's frames are not the checkpoint's."""
    if tuple(book_sizes) != config.codebook_sizes:
        raise ConfigError(
            f"{path}: audio_codebook_sizes is {list(config.codebook_sizes)}, the codec's books have "
            f"{list(book_sizes)} codes: they were not trained together; give the codec that config.json names"
        )
    if sample_rate != config.sample_rate:
        raise ConfigError(
            f"{path}: sampling_rate is {config.sample_rate}, the codec's is {sample_rate}: "
            "they were not trained together; give the codec that config.json names"
        )
