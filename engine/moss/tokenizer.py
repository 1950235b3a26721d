"""The text tokenizer of a checkpoint folder, through the `tokenizers` package, which is imported when one is loaded.

It reads `tokenizer.json`, or the older `vocab.json` and `merges.txt` of Qwen2. It does not know the prompt's template.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codec.checkpoints.errors import DOWNLOAD, CheckpointError
from engine.moss.packing import Tokenize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WHOLE, VOCABULARY, MERGES, SETTINGS = "tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"

# Where Qwen2 cuts a text before it merges bytes: contractions, words with the mark before them, single digits, runs
# of other marks, line ends, and spaces.
_QWEN2_CUTS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def load_tokenizer(folder: Path) -> Tokenize:
    """The folder's tokenizer as a function from text to ids, without special tokens around them.

    Raises:
        CheckpointError: the files are missing or damaged.
        ValueError: the `tokenizers` package is not installed.
    """
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise ValueError(
            "the package tokenizers is not installed, MOSS prompts need it: pip install tokenizers"
        ) from None
    whole, vocabulary, merges = folder / WHOLE, folder / VOCABULARY, folder / MERGES
    if whole.is_file():
        tokenizer = _read_whole(whole)
    elif vocabulary.is_file() and merges.is_file():
        tokenizer = _read_parts(vocabulary, merges, folder / SETTINGS)
    else:
        raise CheckpointError(f"{whole} does not exist, nor {VOCABULARY} with {MERGES}: {DOWNLOAD}")

    def tokenize(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return tokenize


def _read_whole(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises the bare class
        raise CheckpointError(f"{path} is no readable tokenizer ({error}): {DOWNLOAD}") from None


def _read_parts(vocabulary: Path, merges: Path, settings: Path) -> Tokenizer:
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

    try:
        tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:
        raise CheckpointError(
            f"{vocabulary} and {merges.name} are no readable tokenizer ({error}): {DOWNLOAD}"
        ) from None
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_CUTS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    for number, token in _added(settings):
        tokenizer.add_tokens([AddedToken(token["content"], special=bool(token.get("special")), normalized=False)])
        if tokenizer.token_to_id(token["content"]) != number:
            raise CheckpointError(
                f"{settings}: {token['content']!r} has id {number}, but comes as "
                f"{tokenizer.token_to_id(token['content'])} after {vocabulary.name}: {DOWNLOAD}"
            )
    return tokenizer


def _added(settings: Path) -> list[tuple[int, dict[str, Any]]]:
    """Tokens that stand outside the vocabulary, by rising id."""
    if not settings.is_file():
        raise CheckpointError(f"{settings} does not exist, which lists tokens beside {VOCABULARY}: {DOWNLOAD}")
    try:
        listed = json.loads(settings.read_text(encoding="utf-8"))["added_tokens_decoder"]
        return sorted((int(number), token) for number, token in listed.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{settings} has no readable added_tokens_decoder ({error!r}): {DOWNLOAD}") from None
