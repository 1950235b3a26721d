"""The tokenizer of a checkpoint folder: both forms give the same ids, and damaged files are named."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codec.checkpoints.errors import CheckpointError
from engine.moss.tokenizer import load_tokenizer
from tests.tiny_voice import byte_symbols, write_tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="needs the package tokenizers: pip install tokenizers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path


def pieces(folder: Path, text: str) -> list[str]:
    """What the ids of a text stand for, in byte-level letters."""
    symbols = {number: symbol for symbol, number in json.loads((folder / "vocab.json").read_text()).items()}
    return [symbols.get(number, f"<{number}>") for number in load_tokenizer(folder)(text)]


# The ids of these were compared once with those of Qwen2Tokenizer in transformers 5.24.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello th", ["hell", "o", "Ġ", "th"]),
        ("12", ["1", "2"]),  # digits stand alone, though the merge exists
        ("he's", ["he", "'s"]),
        ("a  b", ["a", "Ġ", "Ġ", "b"]),  # the last space belongs to the word
        ("\n\n", ["ĊĊ"]),
        ("e\u0301", ["Ã", "©"]),  # composed first
        ("<|im_start|>he", ["<301>", "he"]),
        ("", []),
    ],
)
def test_texts_are_cut_as_qwen2_does(folder: Path, text: str, expected: list[str]) -> None:
    assert pieces(folder, text) == expected


def test_every_byte_has_its_id(folder: Path) -> None:
    assert len(set(byte_symbols())) == 256
    assert load_tokenizer(folder)("é早\x00") == [0xC3, 0xA9, 0xE6, 0x97, 0xA9, 0x00]


def test_one_file_is_read_as_it_is_and_nothing_is_put_around_a_text(folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="h $A", special_tokens=[("h", 104)])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert tokenizer.encode("he").ids == [104, *load_tokenizer(folder)("he")]
    assert len(load_tokenizer(folder)("12")) == 1, "this one merges digits, unlike the files beside it"


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


SETTINGS = "tokenizer_config.json"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("merges.txt"), r"tokenizer\.json does not exist, nor vocab\.json with merges\.txt: download"),
        (write("tokenizer.json", "{"), r"tokenizer\.json is no readable tokenizer .*: download"),
        (write("vocab.json", "[]"), r"vocab\.json and merges\.txt are no readable tokenizer .*: download"),
        (remove(SETTINGS), r"tokenizer_config\.json does not exist, which lists tokens beside vocab\.json"),
        (write(SETTINGS, "{}"), r"tokenizer_config\.json has no readable added_tokens_decoder"),
        (
            write(SETTINGS, json.dumps({"added_tokens_decoder": {"317": {"content": "<|x|>"}}})),
            r"'<\|x\|>' has id 317, but comes as 300 after vocab\.json",
        ),
    ],
)
def test_what_is_missing_or_damaged_is_named(folder: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(folder)


def test_without_the_package_the_error_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match="tokenizers is not installed, MOSS prompts need it: pip install tokenizers"):
        load_tokenizer(folder)
