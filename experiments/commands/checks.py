"""What is checked before a search: settings, texts, outputs.

Every complaint names the option, its value and what is allowed. Knows the names of options and settings;
loads no model.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from engine.builtin.text import split_sentences
from experiments.commands.outcome import InputError
from experiments.commands.players import PLAYERS, Player, installed_players
from experiments.report.files import checked_folder, prepared_folder
from search import SearchConfig, SpeechRequest
from search.config import WHOLE_UTTERANCE
from search.protocols import Engine

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\s*\n\s*")
_ATTRIBUTE = r"""\s+[\w:.-]+\s*=\s*("[^"]*"|'[^']*')"""
_TAG = re.compile(rf"</?[A-Za-z][\w:.-]*({_ATTRIBUTE})*\s*/?>")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

OPTION_OF = {
    "text": "TEXT",
    "n": "-n",
    "beam_width": "--beam-width",
    "chunk_frames": "--chunk-ms",
    "seed": "--seed",
    "guidance": "--guidance",
    "temperature": "--temperature",
    "max_lag_seconds": "--max-lag",
    "max_seconds": "--max-seconds",
    "stop_bias": "--stop-bias",
    "min_seconds": "--min-seconds",
    "engine": "--engine",
    "device": "--device",
    "scorer": "--scorer",
    "report": "--report",
    "instruction": "--instruction",
    "language": "--language",
    "reference": "--reference",
}
"""The command-line name of each field that an error message may begin with."""


def bad_input(error: Exception, option: str = "") -> InputError:
    """A library's `field: what is wrong` with the option's name in the place of the field's (or else before it)."""
    field, colon, rest = str(error).partition(":")
    if field in OPTION_OF:
        return InputError(f"{OPTION_OF[field]}{colon}{rest}")
    return InputError(f"{option}: {error}" if option else str(error))


def checked_config(settings: dict[str, Any]) -> SearchConfig:
    """A configuration from its fields."""
    try:
        return SearchConfig(**settings)
    except (ValueError, TypeError) as error:
        raise bad_input(error) from error


def chunk_frames(chunk_ms: float, frame_rate: Fraction) -> int:
    """Frames in so many milliseconds; the message names the nearest lengths that are whole frames."""
    frame_ms = 1000 / frame_rate
    longest = WHOLE_UTTERANCE * frame_ms
    if not math.isfinite(chunk_ms) or chunk_ms > longest:
        allowed = f"{_milliseconds(frame_ms)} to {_milliseconds(longest)}"
        raise InputError(f"--chunk-ms: {chunk_ms:.12g} is out of range; allowed is {allowed}")
    frames = round(chunk_ms / frame_ms)
    if frames >= 1 and abs(frames * frame_ms - chunk_ms) < 0.01:  # some frame lengths have no exact decimal
        return frames
    below = max(0, int(chunk_ms // frame_ms))
    nearest = " and ".join(_milliseconds(count * frame_ms) for count in (below, below + 1) if count)
    raise InputError(
        f"--chunk-ms: {chunk_ms:g} is not a whole number of frames of {_milliseconds(frame_ms)} ms; nearest: {nearest}"
    )


def _milliseconds(value: Fraction) -> str:
    return f"{float(value):.2f}".rstrip("0").rstrip(".")


def checked_sentences(text: str, engine: str) -> list[str]:
    """The sentences of TEXT, or of standard input where TEXT is a dash.

    The built-in voice has its own idea of what it can say in one breath; for others a sentence ends at
    its mark or line. What would be read aloud by mistake is refused: bytes that are no text, and tags.
    """
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"TEXT: standard input is not UTF-8 (byte {error.start})") from error
    _refuse_what_is_no_plain_text(text)
    try:
        pieces = split_sentences(text) if engine == "builtin" else _SENTENCE_END.split(text)
    except ValueError as error:
        raise bad_input(error) from error
    sentences = [piece.strip() for piece in pieces if piece.strip()]
    if not sentences:
        raise InputError("TEXT: nothing to say; give at least one word")
    return sentences


def _refuse_what_is_no_plain_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of an argument that could not be decoded
        raise InputError(f"TEXT: not valid UTF-8 at character {error.start + 1}") from error
    if "\0" in text:
        raise InputError(f"TEXT: a zero byte at character {text.index(chr(0)) + 1}; give plain text")
    if tag := _TAG.search(text):
        raise InputError(f"TEXT: tag {' '.join(tag[0].split())} would be read aloud; give plain text without tags")


def checked_dtype(name: str | None) -> torch.dtype | None:
    """The type of an engine's weights."""
    if name is not None and name not in DTYPES:
        raise InputError(f"--dtype: {name!r} is not known; allowed are {', '.join(DTYPES)}")
    return None if name is None else DTYPES[name]


def checked_reference(manner: Mapping[str, Any]) -> None:
    """A recording that is not there is found before anything is loaded."""
    path = manner.get("reference")
    if path is not None and not Path(path).is_file():
        raise InputError(f"--reference: {str(path)!r} is no file")


def checked_requests(sentences: Sequence[str], manner: Mapping[str, Any], engine: Engine) -> list[SpeechRequest]:
    """One request a sentence. An engine says that it cannot speak a text when it is asked for the text's budget."""
    requests = [SpeechRequest(text=sentence, **manner) for sentence in sentences]
    for request in requests:
        try:
            engine.budget(request)
        except ValueError as error:
            raise bad_input(error) from error
    return requests


def checked_output(output: str | None, *, other_place: bool, as_json: bool) -> Path | None:
    """The WAV file to write, known to be writable; None for no file.

    `other_place`: the audio goes somewhere else too, so that no file is needed where none is named.
    """
    if output == "-":
        if as_json:
            raise InputError("-o: standard output cannot carry both the audio and --json; give a file")
        if sys.stdout.isatty():
            raise InputError("-o: standard output is a terminal; pipe the audio into a program or a file")
        return None
    if output is None:
        return None if other_place else writable_wav(Path("speech.wav"))
    return writable_wav(Path(output))


def writable_wav(path: Path) -> Path:
    """The path, if a WAV file can be written there. An older file is left as it is."""
    try:
        if path.is_dir():
            raise InputError(f"-o: {str(path)!r} is a folder; name a file in it")
        if path.suffix.lower() != ".wav":
            raise InputError(f"-o: {str(path)!r} does not end in .wav, and WAV is what is written")
        if not path.parent.is_dir():
            raise InputError(f"-o: folder {str(path.parent)!r} does not exist")
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise InputError(f"-o: {str(path)!r} cannot be written: {error.strerror}") from error
    return path


def checked_report(folder: Path | None) -> Path | None:
    """The folder of the report, known to be writable. An earlier report in it is left as it is."""
    try:
        return None if folder is None else checked_folder(folder)
    except ValueError as error:
        raise bad_input(error) from error


def prepared_report(folder: Path | None) -> Path | None:
    """The folder of the report, empty and ready."""
    try:
        return None if folder is None else prepared_folder(folder)
    except ValueError as error:
        raise bad_input(error) from error


def checked_players(*, wanted: bool) -> list[Player]:
    """The players to try, the preferred one first; empty where none is wanted."""
    if not wanted:
        return []
    players = installed_players()
    if not players:
        names = ", ".join(player.name for player in PLAYERS)
        raise InputError(f"--play: no program that plays audio was found (looked for {names}); install one, or use -o")
    return players
