"""Typed access to the fields of a codec's `config.json`, with one-line errors that say what to do.

It does not know which fields there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class MossCodecError(ValueError):
    """A codec folder cannot be used: the message names the file, what is wrong in it, and the cure."""


class Fields:
    """One JSON object of `path`; `prefix` is what messages put before a field's name."""

    def __init__(self, values: Mapping[str, Any], path: Path, prefix: str = "") -> None:
        self.values, self.path, self._prefix = values, path, prefix

    @classmethod
    def read(cls, path: Path) -> Fields:
        """The object that a file holds."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MossCodecError(
                f"{path} does not exist: give a codec folder, with config.json beside its weights"
            ) from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise MossCodecError(f"{path} cannot be read as JSON ({error}): download it again") from None
        if not isinstance(values, dict):
            raise MossCodecError(f"{path} holds a {type(values).__name__}, not an object: download it again")
        return cls(values, path)

    def error(self, name: str, wanted: str) -> MossCodecError:
        """What to raise about a field; `wanted` says what would be right."""
        value = self.values.get(name)
        state = "is missing" if value is None else f"is {value!r}"
        return MossCodecError(f"{self.path}: {self._prefix}{name} {state}: {wanted}")

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number above 0."""
        value = self._value(name, default)
        if type(value) is not int or value < 1:
            raise self.error(name, "a whole number above 0 is needed")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self.error(name, "a number above 0 is needed")
        return float(value)

    def one_of(self, name: str, allowed: tuple[Any, ...], default: Any = None) -> Any:
        """One of the values that are implemented."""
        value = self._value(name, default)
        if not any(type(value) is type(choice) and value == choice for choice in allowed):
            raise self.error(name, f"only {' or '.join(map(repr, allowed))} is implemented")
        return value

    def nested(self, name: str) -> Fields:
        """A field that is an object itself."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self.error(name, "an object is needed")
        return Fields(value, self.path, f"{self._prefix}{name}.")

    def objects(self, name: str) -> list[Fields]:
        """A field that is a list of objects."""
        value = self.values.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.error(name, "a list of objects is needed")
        return [Fields(item, self.path, f"{self._prefix}{name}[{place}].") for place, item in enumerate(value)]

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        return default if value is None else value
