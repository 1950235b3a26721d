"""How a command ends: exit codes, the object for `--json`, and errors written for people.

Knows nothing about what any command does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DONE, FAILED, BAD_INPUT, HIT_FRAME_LIMIT = 0, 1, 2, 3


@dataclass(frozen=True)
class Outcome:
    """The end of a command.

    Attributes:
        code: exit code of the process.
        data: what `--json` prints; JSON-ready but for NaN.
        error: one line for a person, empty when all went well.
    """

    code: int
    data: dict[str, Any] = field(default_factory=dict)
    error: str = ""


class CommandError(Exception):
    """Something failed; the message is all that a person needs to read. `data` is what `--json` prints all the same."""

    def __init__(self, message: str, code: int = FAILED, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data or {}


class InputError(CommandError):
    """What the user asked for cannot be done; the message names the option, its value and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, BAD_INPUT)


def outcome_of(error: Exception) -> Outcome:
    """The outcome that an error stands for: its message, where it was written for people, else its type and message."""
    # Errors of the argument parser are told by what they carry: typer has them from click or from a copy of its own.
    parser_message = getattr(error, "format_message", None)
    if isinstance(error, CommandError):
        return Outcome(error.code, error.data, str(error))
    if callable(parser_message):
        return Outcome(BAD_INPUT, error=str(parser_message()))
    return Outcome(FAILED, error=described(error))


def described(error: BaseException) -> str:
    """One line for an error that nobody foresaw."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
