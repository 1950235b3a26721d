"""Fields of a config: what is allowed of each kind, and errors that name the field, its value and what is needed."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codec.checkpoints.errors import CheckpointError, ConfigError
from codec.checkpoints.fields import Fields

Read = Callable[[Fields], object]


@pytest.mark.parametrize(
    ("read", "value", "needed"),
    [
        (lambda fields: fields.integer("x"), -1, "a whole number from 0 up"),
        (lambda fields: fields.integer("x"), True, "a whole number from 0 up"),
        (lambda fields: fields.size("x"), 0, "a whole number above 0"),
        (lambda fields: fields.size("x"), 2.0, "a whole number above 0"),
        (lambda fields: fields.integers("x", []), [1, 2.0], "a list of whole numbers"),
        (lambda fields: fields.positive("x"), 0, "a number above 0"),
        (lambda fields: fields.positive("x"), math.inf, "a number above 0"),
        (lambda fields: fields.positive("x"), math.nan, "a number above 0"),
        (lambda fields: fields.flag("x", True), 1, "true or false"),
        (lambda fields: fields.text("x"), 3, "a text"),
        (lambda fields: fields.one_of("x", "a", "b"), "c", "only 'a' or 'b' is implemented"),
        (lambda fields: fields.nested("x"), [], "an object"),
        (lambda fields: fields.objects("x"), [{}, 1], "a list of objects"),
    ],
)
def test_what_is_not_allowed_is_named(read: Read, value: Any, needed: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(Fields({"x": value}, "config.json: "))
    assert str(error.value).startswith(f"config.json: x is {value!r}: {needed}")


def test_null_counts_as_left_out() -> None:
    fields = Fields({"x": None})
    assert (fields.size("x", 3), fields.flag("x", True), fields.one_of("x", "a", default="a")) == (3, True, "a")
    with pytest.raises(ConfigError, match=r"^x is missing: a text is needed"):
        fields.text("x")


def test_a_default_that_is_not_allowed_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^x is 'b': only 'a' is implemented"):
        Fields({}).one_of("x", "a", default="b")


def test_places_inside_are_named_in_full() -> None:
    top = Fields({"outer": {"parts": [{"size": 1}, {"size": 0}]}}, "file: ")
    first, second = top.nested("outer").objects("parts")
    assert first.size("size") == 1
    with pytest.raises(ConfigError, match=r"^file: outer\.parts\[1\]\.size is 0"):
        second.size("size")


def test_of_several_names_the_first_that_is_there_counts() -> None:
    assert Fields({"old": 7, "new": None}).first_integer("new", "old") == 7
    with pytest.raises(ConfigError, match=r"^new is missing"):
        Fields({}).first_integer("new", "old")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "cannot be read as JSON"), (b"\xff", "cannot be read as JSON"), (b"3", "holds a int, an object is needed")],
)
def test_a_file_that_holds_no_object_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"config\.json {message}.*: download it again"):
        Fields.read(path, "cure")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"config\.json does not exist: cure$"):
        Fields.read(path, "cure")
