"""TOML that is written is read again as what it was."""

import tomllib
from typing import Any

import pytest

from experiments.sweep.toml_text import toml_text


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"name": 'a "b" \\ c\n\t\r\x00\x1f\x7f\u2028 \U0001f3b5 ö'},
        {"yes": True, "no": False, "whole": -3, "large": 10**15},
        {"floats": [1.0, 0.1, 1e-7, 1e22, -0.0, float("inf")]},
        {"mixed": [800, "whole", 1.5, True], "empty": [], "nested": [[1], ["a"]]},
        {"first": {"a": 1, "deeper": {"b": [2]}}, "after": "plain", "bare": {}},
        {"a b": 1, "": 2, "c.d": {"e.f": 3, "g": {"h": 4}}},
    ],
)
def test_what_is_written_is_read_again(values: dict[str, Any]) -> None:
    found = tomllib.loads(toml_text(values))
    assert found == values
    assert repr(sorted(found.items())) == repr(sorted(values.items()))  # 1, 1.0 and True are equal


@pytest.mark.parametrize("value", [None, (1, 2), [{"a": 1}], b"text"])
def test_what_it_has_no_form_for_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^key: "):
        toml_text({"key": value})
