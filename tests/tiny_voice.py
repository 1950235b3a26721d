"""A whole tiny MOSS voice in a folder, in the published layout: checkpoint, tokenizer and codec, all random."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.moss.checkpoint import save_network
from engine.moss.config import MossConfig, SpecialIds
from tests.tiny import tiny_moss_config, tiny_moss_network
from tests.tiny_codec import tiny_codec, tiny_config

VOCABULARY = 320
FIRST_SPECIAL = 300
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CODEC_ID = "OpenMOSS-Team/MOSS-Audio-Tokenizer-v2"
BOOKS = 3  # of the codec's four


def tiny_voice_config() -> MossConfig:
    """Sizes of `tiny_moss_config`, with room for a tokenizer of bytes, and the tiny stereo codec's frames."""
    config = tiny_moss_config((16,) * BOOKS, sample_rate=tiny_config("second")["sampling_rate"])
    names = ("pad", "im_start", "im_end", "audio_start", "audio_end", "user_slot", "assistant_slot")
    ids = SpecialIds(**{name: FIRST_SPECIAL + place for place, name in enumerate(names)})
    return replace(config, backbone=replace(config.backbone, vocabulary=VOCABULARY), ids=ids, codec=CODEC_ID)


def tiny_voice(folder: Path, *, codec: str = "codec", stop: float = 0.06) -> Path:
    """The folder of a voice with its codec in `codec/` inside; the tokenizer is Qwen2's kind, in its older files."""
    save_network(tiny_moss_network(tiny_voice_config(), stop=stop), folder)
    write_tokenizer(folder)
    tiny_codec(folder / codec, "second")
    return folder


def write_tokenizer(folder: Path) -> None:
    """`vocab.json`, `merges.txt` and `tokenizer_config.json`: bytes, a few merges, and special ids from 300."""
    merges = ["h e", "l l", "he ll", "Ġ w", "t h", "e r", "' s", "1 2", "Ċ Ċ", "ĠĠ Ġ", "Ġ Ġ"]
    symbols = [*byte_symbols(), *(merge.replace(" ", "") for merge in merges)]
    symbols += [f"unused {number}" for number in range(len(symbols), FIRST_SPECIAL)]
    (folder / "vocab.json").write_text(json.dumps({symbol: number for number, symbol in enumerate(symbols)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    added = {str(FIRST_SPECIAL + place): _token(content) for place, content in enumerate(SPECIALS)}
    settings = {"added_tokens_decoder": added, "tokenizer_class": "Qwen2Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def byte_symbols() -> list[str]:
    """The letters that stand for bytes 0 to 255 in byte-level vocabularies: printable ones for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _token(content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": content, "special": True, **flags}
