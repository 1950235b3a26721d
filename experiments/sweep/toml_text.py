"""Settings written as TOML, for files that people read and programs read again. Knows no dates, and no comments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(values: Mapping[str, Any], table: str = "") -> str:
    """TOML of text, whole numbers, floats, booleans, lists of these, and mappings, which become tables.

    Args:
        table: dotted name of the table that the values are in; empty: the document itself.

    Raises:
        TypeError: naming the key of a value that TOML has no form for, or that has none here.
    """
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value, key)}" for key, value in plain.items()]
    parts = ["\n".join(([f"[{table}]"] if table else []) + lines)]
    for key, value in values.items():
        if isinstance(value, Mapping):
            parts.append(toml_text(value, f"{table}.{_key(key)}" if table else _key(key)).rstrip("\n"))
    return "\n\n".join(part for part in parts if part) + "\n"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any, key: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case list():
            return f"[{', '.join(_value(one, key) for one in value)}]"
    raise TypeError(f"{key}: {value!r} is a {type(value).__name__}; TOML is written of text, numbers and lists")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # the one sign that JSON leaves, TOML not
