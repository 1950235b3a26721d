"""Every dial is checked when it is set, and the error says what would have been right."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search import Sampling, SearchConfig, SpeechRequest

RATE = Fraction(25, 2)


def test_defaults() -> None:
    assert dataclasses.asdict(SearchConfig()) == {
        "n": 8,
        "beam_width": 1,
        "chunk_frames": 10,
        "first_chunk_frames": None,
        "max_seconds": None,
        "guidance": None,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 0.95,
        "repetition_penalty": 1.0,
        "text_temperature": 1.0,
        "seed": 777,
        "max_lag_seconds": None,
        "stop_bias": 0.0,
        "min_seconds": 0.0,
    }


@pytest.mark.parametrize(
    ("field", "value", "kind", "allowed"),
    [
        ("n", 0, ValueError, "1 to 64"),
        ("n", 65, ValueError, "1 to 64"),
        ("n", 2.0, TypeError, "integer"),
        ("n", True, TypeError, "integer"),
        ("beam_width", 9, ValueError, "1 to n = 8"),
        ("beam_width", 0, ValueError, "1 to n = 8"),
        ("chunk_frames", 0, ValueError, "1 to"),
        ("first_chunk_frames", 0, ValueError, "1 to"),
        ("first_chunk_frames", "4", TypeError, "integer"),
        ("max_seconds", 0, ValueError, "above 0 and at most 60"),
        ("max_seconds", 60.1, ValueError, "above 0 and at most 60"),
        ("max_seconds", "5", TypeError, "number"),
        ("max_seconds", float("nan"), ValueError, "above 0"),
        ("guidance", -1.0, ValueError, "at least 0 and at most 100"),
        ("guidance", 1e38, ValueError, "at least 0 and at most 100"),
        ("temperature", -0.1, ValueError, "0, or at least 0.001 and at most 100"),
        ("temperature", 1e-45, ValueError, "0, or at least 0.001 and at most 100"),
        ("temperature", False, TypeError, "number"),
        ("temperature", float("inf"), ValueError, "at least 0"),
        ("temperature", None, TypeError, "number"),
        ("top_k", -1, ValueError, "0 to"),
        ("top_p", 0.0, ValueError, "above 0 and at most 1"),
        ("top_p", 1.01, ValueError, "above 0 and at most 1"),
        ("repetition_penalty", 0.0, ValueError, "at least 0.01 and at most 100"),
        ("repetition_penalty", 1e-40, ValueError, "at least 0.01 and at most 100"),
        ("text_temperature", -1, ValueError, "at least 0"),
        ("text_temperature", 1e-45, ValueError, "0, or at least 0.001"),
        ("seed", -1, ValueError, "0 to"),
        ("seed", 1 << 63, ValueError, "0 to"),
        ("max_lag_seconds", -0.1, ValueError, "at least 0"),
        ("stop_bias", -100.5, ValueError, "at least -100 and at most 100"),
        ("stop_bias", None, TypeError, "number"),
        ("min_seconds", -1, ValueError, "at least 0 and at most 60"),
        ("min_seconds", 60.5, ValueError, "at least 0 and at most 60"),
        ("min_seconds", "2", TypeError, "number"),
    ],
)
def test_errors_name_field_value_and_what_is_allowed(
    field: str, value: object, kind: type[Exception], allowed: str
) -> None:
    with pytest.raises(kind) as caught:
        SearchConfig(**{field: value})  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"{field}: ")
    assert str(value) in message
    assert allowed in message


def test_numpys_integers_are_whole_numbers() -> None:
    config = SearchConfig(n=np.int64(4), beam_width=np.int32(2), seed=np.int64(3))  # type: ignore[arg-type]
    assert config == SearchConfig(n=4, beam_width=2, seed=3)
    assert type(config.n) is type(config.seed) is int


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-3, 100])
def test_the_ends_of_the_range_of_temperatures_are_allowed(temperature: float) -> None:
    config = SearchConfig(temperature=temperature, text_temperature=temperature)
    assert config.temperature == config.text_temperature == temperature


def test_sampling_is_the_part_that_reaches_the_engine() -> None:
    config = SearchConfig(temperature=0.5, top_k=3, top_p=0.5, repetition_penalty=1.5, text_temperature=0.0, seed=3)
    assert config.sampling == Sampling(0.5, 3, 0.5, 1.5, 0.0, None, 3)
    assert {field.name for field in dataclasses.fields(Sampling)} <= {f.name for f in dataclasses.fields(SearchConfig)}


@pytest.mark.parametrize(
    ("max_seconds", "budget", "frames"),
    [(None, 30, 30), (None, 10_000, 750), (None, 0, 1), (60.0, 5, 750), (2.0, 5, 25), (0.01, 5, 1), (1, 5, 12)],
)
def test_frame_limit(max_seconds: float | None, budget: int, frames: int) -> None:
    assert SearchConfig(max_seconds=max_seconds).frame_limit(budget, RATE) == frames


@pytest.mark.parametrize(
    ("min_seconds", "budget", "frames"), [(1.0, 30, 30), (2.0, 30, 50), (50.0, 30, 750), (0.24, 3, 6)]
)
def test_a_minimum_beyond_the_budget_leaves_room_for_an_end(min_seconds: float, budget: int, frames: int) -> None:
    assert SearchConfig(min_seconds=min_seconds).frame_limit(budget, RATE) == frames


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(ValueError, match="min_seconds: 3 is out of range; max_seconds = 2"):
        SearchConfig(min_seconds=3, max_seconds=2)
    assert SearchConfig(min_seconds=2, max_seconds=2).frame_limit(9, RATE) == 25


@pytest.mark.parametrize(("seconds", "frames"), [(0.0, 0), (0.01, 1), (0.24, 3), (0.25, 4), (1, 13)])
def test_no_row_stops_before_the_whole_frames_of_the_minimum(seconds: float, frames: int) -> None:
    assert SearchConfig(min_seconds=seconds).sampling.least_frames(RATE) == frames


@given(st.integers(1, 750))
def test_a_limit_given_as_whole_frames_is_met_exactly(frames: int) -> None:
    """0.8 s are ten frames of 80 ms, and 0.24 s are three, though both floats lie a little beside."""
    assert SearchConfig(max_seconds=round(frames * 0.08, 2)).frame_limit(1, RATE) == frames


def test_a_request_needs_words() -> None:
    for text in ("", "  \n"):
        with pytest.raises(ValueError, match=r"text: .* nothing to say"):
            SpeechRequest(text=text)
    with pytest.raises(TypeError, match="text: 5 is a int"):
        SpeechRequest(text=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="id: 7 is a int"):
        SpeechRequest(text="a", id=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"prompt: \[1, 2\] is a list; it must be an int64 tensor"):
        SpeechRequest(text="a", prompt=[1, 2])  # type: ignore[arg-type]
