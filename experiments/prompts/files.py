"""Prompt files: JSON lines, CSV, plain text, and the `meta.lst` of seed-tts-eval.

    .jsonl       an object a line: {"text": "...", "id": "...", "language": ..., "instruction": ..., "reference": ...}
    .csv         the same fields as columns, with a header
    .txt         a text a line
    .lst         name|text of the reference|reference audio|text[|...], as seed-tts-eval has it

Only `text` is needed. Ids name takes and key their noise, so they must differ; a prompt without one gets the file's
name and its place. Paths of references are relative to the file. Empty lines are skipped. Every complaint has the
file and the number of the line. Knows no engine: whether a reference can be used is the engine's affair.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from search import SpeechRequest

HERE = Path(__file__).parent
PROMPT_SETS = {"everyday": HERE / "everyday.txt", "hard": HERE / "hard.jsonl"}
"""Sixty everyday sentences; forty hard ones: names, numbers, tongue twisters, repetitions and questions, eight each."""


class PromptError(ValueError):
    """A prompt file cannot be used; the message names the file and the line."""


@dataclass(frozen=True)
class Prompt:
    """A text to speak, and how. `reference` is a path."""

    id: str
    text: str
    language: str | None = None
    instruction: str | None = None
    reference: str | None = None

    def request(self) -> SpeechRequest:
        """The request for it. Its id keys the noise, so that all configurations of a study share theirs."""
        return SpeechRequest(
            text=self.text,
            id=self.id,
            language=self.language,
            instruction=self.instruction,
            reference=self.reference,
        )


FIELDS = tuple(field.name for field in fields(Prompt))
Numbered = Iterator[tuple[int, dict[str, Any]]]


def read_prompts(source: str | Path) -> list[Prompt]:
    """The prompts of a file, or of a set that comes along ("everyday", "hard").

    Raises:
        PromptError: there is no such file or set, a line cannot be read, or two prompts have one id.
    """
    path = PROMPT_SETS.get(str(source), Path(source).expanduser())
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        kinds, sets = ", ".join(READERS), ", ".join(PROMPT_SETS)
        raise PromptError(f"{str(source)!r} is no prompt file; allowed are files that end in {kinds}, and {sets}")
    try:
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PromptError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise PromptError(f"{path}: not UTF-8 at byte {error.start}") from None
    lines: dict[str, int] = {}
    prompts: list[Prompt] = []
    for number, values in reader(path, content):
        prompt = _prompt(path, number, len(prompts) + 1, values)
        if prompt.id in lines:
            raise PromptError(
                f"{path}:{number}: id {prompt.id!r} is that of line {lines[prompt.id]} too; ids must differ"
            )
        lines[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise PromptError(f"{path}: no prompts in it")
    return prompts


def _prompt(path: Path, line: int, place: int, values: dict[str, Any]) -> Prompt:
    values = {name: value for name, value in values.items() if value not in (None, "")}
    for name, value in values.items():
        if name not in FIELDS:
            raise PromptError(f"{path}:{line}: unknown field {name!r}; allowed are {', '.join(FIELDS)}")
        if not isinstance(value, str):
            raise PromptError(f"{path}:{line}: {name} is {value!r}; it must be text")
    if not values.get("text", "").strip():
        raise PromptError(f"{path}:{line}: no text")
    if "reference" in values:
        reference = path.parent / values["reference"]
        if not reference.is_file():
            raise PromptError(f"{path}:{line}: reference {str(reference)!r} is no file")
        values["reference"] = str(reference)
    return Prompt(**{"id": f"{path.stem}-{place:02d}", **values, "text": values["text"].strip()})


def _json_lines(path: Path, content: str) -> Numbered:
    for number, line in enumerate(content.split("\n"), start=1):  # a string may hold other ends of lines
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise PromptError(f"{path}:{number}: no valid JSON: {error.msg} at character {error.pos + 1}") from None
        if not isinstance(values, dict):
            raise PromptError(f"{path}:{number}: a {type(values).__name__}, not an object with a text")
        yield number, values


def _csv(path: Path, content: str) -> Numbered:
    rows = csv.DictReader(io.StringIO(content, newline=""), strict=True)
    if "text" not in (rows.fieldnames or ()):
        raise PromptError(f"{path}:1: no column 'text'; the header has {', '.join(rows.fieldnames or ()) or 'nothing'}")
    try:
        for values in rows:
            if None in values or None in values.values():
                raise PromptError(f"{path}:{rows.line_num}: {len(rows.fieldnames or ())} columns are needed")
            yield rows.line_num, values
    except csv.Error as error:
        raise PromptError(f"{path}:{rows.reader.line_num}: {error}") from None


def _plain(_path: Path, content: str) -> Numbered:
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            yield number, {"text": line}


def _seed_tts_eval(path: Path, content: str) -> Numbered:
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        parts = line.split("|")
        if len(parts) < 4:
            raise PromptError(f"{path}:{number}: {len(parts)} fields between bars; name|text|audio|text are needed")
        name, _, reference, text = (part.strip() for part in parts[:4])
        yield number, {"id": name, "reference": reference, "text": text}


READERS: dict[str, Callable[[Path, str], Numbered]] = {
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".txt": _plain,
    ".lst": _seed_tts_eval,
}
