"""Puts the built-in voice together: a network in the MOSS-Local layout, the built-in codec, and the English front end.

It does not know how well the voice speaks: that is measured, and written in its model card.
"""

from __future__ import annotations

from pathlib import Path

import torch

from codec.builtin import BuiltinCodec
from engine.builtin.text import BuiltinPrompt
from engine.moss.checkpoint import load_network
from engine.moss.codecs import check_codec
from engine.moss.config import BUILTIN_CODEC, MossConfig
from engine.moss.engine import MossEngine

SHIPPED = Path(__file__).parent


def load_voice(
    folder: Path = SHIPPED,
    *,
    name: str = "builtin",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    codec: BuiltinCodec | None = None,
) -> MossEngine:
    """The shipped voice, or another checkpoint trained on the built-in codec's frames.

    Raises:
        ValueError: the folder's files cannot be used, or the checkpoint speaks in another codec's frames.
    """
    config = MossConfig.load(folder / "config.json")
    if config.codec != BUILTIN_CODEC:
        raise ValueError(
            f"{folder / 'config.json'}: audio_tokenizer_name_or_path is {config.codec!r}, whose frames cannot be "
            f"decoded here; only checkpoints of the {BUILTIN_CODEC!r} codec can speak"
        )
    codec = codec or BuiltinCodec.load(device=device)
    check_codec(folder / "config.json", config, codec.book_sizes, codec.sample_rate)
    return MossEngine(load_network(folder, dtype, device), codec, name=name, prompts=BuiltinPrompt(config))
