"""Typed access to the fields of a JSON object, with errors that name the field, its value and what is needed.

It does not know which fields a config has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ConfigError(ValueError):
    """A field of `config.json` is missing, malformed, or asks for something that is not implemented."""


class Fields:
    """Typed, named access to one JSON object; `prefix` is what error messages put before a field's name."""

    def __init__(self, values: Mapping[str, Any], prefix: str) -> None:
        self.values = values
        self.prefix = prefix

    def _get(self, name: str, kinds: type | tuple[type, ...], allowed: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise ConfigError(f"{self.prefix}{name} is missing: {allowed} is needed")
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise ConfigError(f"{self.prefix}{name} is {value!r}: {allowed} is needed")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._get(name, int, "a whole number from 0 up", default)
        if value < 0:
            raise ConfigError(f"{self.prefix}{name} is {value}: a whole number from 0 up is needed")
        return int(value)

    def first_integer(self, *names: str) -> int:
        """The first of several names for one field; published configs differ in which they write."""
        present = [name for name in names if self.values.get(name) is not None]
        return self.integer(present[0] if present else names[0])

    def integers(self, name: str, default: list[int]) -> list[int]:
        values = self._get(name, list, "a list of whole numbers", default)
        if not all(type(value) is int for value in values):
            raise ConfigError(f"{self.prefix}{name} is {values!r}: a list of whole numbers is needed")
        return list(values)

    def positive(self, name: str, default: float | None = None) -> float:
        value = self._get(name, (int, float), "a number above 0", default)
        if not value > 0:
            raise ConfigError(f"{self.prefix}{name} is {value!r}: a number above 0 is needed")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._get(name, bool, "true or false", default))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._get(name, str, "a text", default))

    def mapping(self, name: str, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self._get(name, Mapping, "an object", default)
        return value

    def require(self, name: str, only: Any, default: Any = None) -> None:
        value = self.values.get(name, default)
        if value != only:
            raise ConfigError(f"{self.prefix}{name} is {value!r}: only {only!r} is implemented")
