"""The text tokenizer of a MOSS-TTS-Nano folder, through the `sentencepiece` package, imported when one is loaded.

It does not know the prompt's template.
"""

from __future__ import annotations

from pathlib import Path

from codec.checkpoints.errors import DOWNLOAD, CheckpointError
from engine.moss.packing import Tokenize

MODEL = "tokenizer.model"


def load_tokenizer(folder: Path) -> Tokenize:
    """The folder's `tokenizer.model` as a function from text to ids, as they are: nothing is put around them.

    Raises:
        CheckpointError: the file is missing or damaged.
        ValueError: the `sentencepiece` package is not installed.
    """
    path = folder / MODEL
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: {DOWNLOAD}, its tokenizer too")
    try:
        import sentencepiece
    except ImportError:
        raise ValueError(
            "the package sentencepiece is not installed, MOSS-TTS-Nano prompts need it: pip install sentencepiece"
        ) from None
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path} is no readable SentencePiece model ({reason}): {DOWNLOAD}") from None

    def tokenize(text: str) -> list[int]:
        return [int(number) for number in model.encode(text, add_bos=False, add_eos=False)]

    return tokenize
