"""Typed access to the fields of a JSON object, with errors that name the field, its value and what is needed.

A field that is `null` counts as left out. It does not know which fields a config has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from codec.checkpoints.errors import DOWNLOAD, ConfigError


class Fields:
    """Typed, named access to one JSON object; `prefix` is what error messages put before a field's name."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.values, self.prefix = values, prefix

    @classmethod
    def read(cls, path: Path, cure: str) -> Self:
        """The object that a file holds; `cure` is what to do where there is no such file."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{path} does not exist: {cure}") from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ConfigError(f"{path} cannot be read as JSON ({error}): {DOWNLOAD}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{path} holds a {type(values).__name__}, an object is needed: {DOWNLOAD}")
        return cls(values, f"{path}: ")

    def error(self, name: str, needed: str, value: Any = None) -> ConfigError:
        """What to raise about a field; `needed` says what would be right, `value` stands in for one left out."""
        value = self.values.get(name) if value is None else value
        state = "is missing" if value is None else f"is {value!r}"
        return ConfigError(f"{self.prefix}{name} {state}: {needed}")

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number from 0 up."""
        return self._whole(name, default, 0, "a whole number from 0 up is needed")

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number above 0."""
        return self._whole(name, default, 1, "a whole number above 0 is needed")

    def first_integer(self, *names: str) -> int:
        """The first of several names for one field; published configs differ in which they write."""
        present = [name for name in names if self.values.get(name) is not None]
        return self.integer(present[0] if present else names[0])

    def integers(self, name: str, default: list[int]) -> list[int]:
        """A list of whole numbers."""
        values = self._value(name, default)
        if not isinstance(values, list) or not all(type(value) is int for value in values):
            raise self.error(name, "a list of whole numbers is needed", values)
        return list(values)

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self.error(name, "a number above 0 is needed", value)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "true or false is needed", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text, which may be empty."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, "a text is needed", value)
        return value

    def one_of(self, name: str, *allowed: Any, default: Any = None) -> Any:
        """One of the values that are implemented."""
        value = self._value(name, default)
        if value not in allowed:
            raise self.error(name, f"only {' or '.join(map(repr, allowed))} is implemented", value)
        return value

    def nested(self, name: str, default: Mapping[str, Any] | None = None) -> Fields:
        """A field that is an object itself."""
        value = self._value(name, default)
        if not isinstance(value, Mapping):
            raise self.error(name, "an object is needed", value)
        return Fields(value, f"{self.prefix}{name}.")

    def objects(self, name: str) -> list[Fields]:
        """A field that is a list of objects, at least one."""
        value = self.values.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.error(name, "a list of objects is needed")
        return [Fields(item, f"{self.prefix}{name}[{place}].") for place, item in enumerate(value)]

    def _whole(self, name: str, default: int | None, least: int, needed: str) -> int:
        value = self._value(name, default)
        if type(value) is not int or value < least:
            raise self.error(name, needed, value)
        return value

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        return default if value is None else value
