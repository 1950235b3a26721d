"""Word errors of transcripts: worked examples, policies, and what must hold for every text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jiwer", reason="pip install 'chunksearch[whisper]'")
pytest.importorskip("whisper_normalizer", reason="pip install 'chunksearch[whisper]'")
import jiwer

from scorers.text import (
    GRACE_SECONDS,
    NORMALISER,
    SLOWEST,
    TERMS,
    Fit,
    begins,
    best_fit,
    compare,
    due_by,
    reference_of,
    spoken_words,
    word_errors,
)

TEXT = "The tall man walks to the old house."
WORDS = ("red", "green", "blue", "grass", "sand", "dust", "lamp", "door")
spoken = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8)


def errors(
    text: str, heard: str, *, finished: bool = True, seconds: float = 2.0, cut: bool = False
) -> dict[str, float]:
    return compare(reference_of(text), heard, finished=finished, seconds=seconds, cut=cut)


def test_every_term_is_there_and_says_its_direction() -> None:
    assert list(errors(TEXT, TEXT)) == [term.name for term in TERMS]
    assert [term.name for term in TERMS if term.better == "higher"] == ["first_word"]
    assert re.fullmatch(r"whisper-normalizer \d+(\.\d+)+", NORMALISER)


def test_jiwer_has_what_is_used_of_it() -> None:
    assert callable(jiwer.process_words)
    assert callable(jiwer.process_characters)


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        (TEXT, {"wer": 0, "cer": 0, "extra_words": 0, "missing_words": 0, "first_word": 1}),
        ("The tall man walks to the old house thank you", {"wer": 2 / 8, "extra_words": 2, "missing_words": 0}),
        ("The tall man walks to the house", {"wer": 1 / 8, "extra_words": 0, "missing_words": 1}),
        ("The tall man man walks to the old house", {"wer": 1 / 8, "extra_words": 1}),
        ("The small man walks to the old house", {"wer": 1 / 8, "extra_words": 0, "missing_words": 0}),
        ("tall man walks to the old house", {"wer": 1 / 8, "missing_words": 1, "first_word": 0}),
        ("", {"wer": 1, "cer": 1, "missing_words": 8, "first_word": 0, "words_behind": 0}),
        (f"{TEXT} {TEXT} {TEXT}", {"wer": 2, "extra_words": 16}),
    ],
)
def test_finished_readings(heard: str, expected: dict[str, float]) -> None:
    found = errors(TEXT, heard)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["prefix_wer"] == found["wer"]


@pytest.mark.parametrize(
    "heard", ["", "the", "the tall", "the ta", "The tall man wal-", "the tall man walks to the old"]
)
def test_beginnings_are_free_while_unfinished(heard: str) -> None:
    found = errors(TEXT, heard, finished=False, seconds=0.5)
    assert found["prefix_wer"] == found["extra_words"] == found["missing_words"] == found["words_behind"] == 0
    assert found["first_word"] == bool(heard)
    assert found["wer"] > 0


@pytest.mark.parametrize(
    ("heard", "wrong"),
    [("the small man", 1), ("the man walks", 1), ("the the tall man", 1), ("the tall tree", 1), ("a cat sat on it", 5)],
)
def test_errors_count_while_unfinished(heard: str, wrong: int) -> None:
    assert errors(TEXT, heard, finished=False)["prefix_wer"] == wrong / 8


def test_a_guess_at_a_word_that_was_cut_is_free_but_no_other_word() -> None:
    assert errors(TEXT, "the tall tree", finished=False, cut=True)["prefix_wer"] == 0
    assert errors(TEXT, "the small man", finished=False, cut=True)["prefix_wer"] == 1 / 8
    assert errors(TEXT, "the tall tree", finished=True, cut=True)["prefix_wer"] == 6 / 8


def test_of_prefixes_that_fit_alike_the_longest_is_taken() -> None:
    assert best_fit(("red", "green", "blue"), ("red", "lamp")) == Fit(reached=2, matched=2, judged=2)
    assert best_fit(("red", "green"), ("red", "gr")) == Fit(reached=2, matched=1, judged=1)
    assert best_fit(("red", "green"), ("red", "lamp"), cut=True) == Fit(reached=1, matched=1, judged=1)


@pytest.mark.parametrize(
    ("fragment", "word", "whether"),
    [("chil", "children", True), ("20", "25", True), ("100", "150", True), ("19", "1945", True), ("30", "25", False)],
)
def test_numbers_begin_as_they_are_spoken(fragment: str, word: str, whether: bool) -> None:
    assert begins(fragment, word) is whether


def test_spelling_is_no_error() -> None:
    assert errors("The primary coil isn't fifty turns.", "the primary coil is not 50 turns")["wer"] == 0
    assert errors("What colour?", "what color")["wer"] == 0
    assert errors("Wait… what… 5% … off?", "wait what 5% off")["wer"] == 0


@pytest.mark.parametrize("direction", ["(Snort)", "[laughs]", "<sigh>", "*breathes in*"])
def test_stage_directions_are_no_words_and_are_named(direction: str) -> None:
    reference = reference_of(f"{direction} Well, {direction} no.")
    assert reference.words == ("well", "no")
    assert reference.directions == (direction, direction)


def test_arithmetic_is_no_stage_direction() -> None:
    assert reference_of("2 * 3 * 4, a < b and c > d").directions == ()


@pytest.mark.parametrize("text", ["(sigh)", "!!!", "…"])
def test_a_text_without_words_wants_silence(text: str) -> None:
    for finished in (False, True):
        silent = errors(text, "", finished=finished, seconds=5)
        assert [silent[name] for name in ("prefix_wer", "wer", "cer", "words_behind")] == [0, 0, 0, 0]
        assert silent["first_word"] == 1
        talking = errors(text, "peaceful silence", finished=finished, seconds=5)
        assert (talking["wer"], talking["prefix_wer"], talking["extra_words"]) == (2, 2, 2)


def test_languages_without_spaces_count_characters() -> None:
    assert reference_of("你好,世界", "Chinese").words == ("你", "好", "世", "界")
    assert reference_of("Él está aquí.", "Spanish").words == ("él", "está", "aquí")
    assert spoken_words("नमस्ते दुनिया", "hindi") == ("नमस्ते", "दुनिया")


def test_silence_falls_behind_and_ordinary_readings_do_not() -> None:
    silent = [errors(TEXT, "", finished=False, seconds=seconds)["words_behind"] for seconds in (0.8, 1.6, 2.4, 9.0)]
    assert silent == pytest.approx([0, 2 / 8, 4 / 8, 1])
    assert errors(TEXT, "the tall man", finished=False, seconds=1.6)["words_behind"] == 0
    assert errors(TEXT, "", finished=True, seconds=9.0)["words_behind"] == 0


@given(words=spoken, seconds=st.floats(0, 60))
def test_due_words_follow_the_formula(words: list[str], seconds: float) -> None:
    due = due_by(tuple(words), seconds)
    assert due == 0 or len("".join(words[:due])) <= SLOWEST * (seconds - GRACE_SECONDS)
    assert due == len(words) or len("".join(words[: due + 1])) > SLOWEST * (seconds - GRACE_SECONDS)


@given(words=spoken, heard=spoken, seconds=st.floats(0, 60), cut=st.booleans())
def test_at_the_end_prefix_wer_is_the_wer(words: list[str], heard: list[str], seconds: float, cut: bool) -> None:
    found = errors(" ".join(words), " ".join(heard), seconds=seconds, cut=cut)
    assert found["prefix_wer"] == found["wer"]
    assert found["wer"] == pytest.approx(jiwer.process_words(" ".join(words), " ".join(heard)).wer)


@given(words=spoken, data=st.data(), cut=st.booleans())
def test_no_prefix_of_the_text_has_errors(words: list[str], data: st.DataObject, cut: bool) -> None:
    text = " ".join(words)
    heard = text[: data.draw(st.integers(0, len(text)))]
    assert errors(text, heard, finished=False, cut=cut)["prefix_wer"] == 0


@given(words=spoken, heard=spoken, data=st.data(), finished=st.booleans(), cut=st.booleans())
def test_a_word_that_is_in_no_text_never_lowers_an_error(
    words: list[str], heard: list[str], data: st.DataObject, finished: bool, cut: bool
) -> None:
    place = data.draw(st.integers(0, len(heard) - 1))
    before = errors(" ".join(words), " ".join(heard), finished=finished, cut=cut)
    for replaced in (0, 1):
        worse = [*heard[:place], "xylophone", *heard[place + replaced :]]
        after = errors(" ".join(words), " ".join(worse), finished=finished, cut=cut)
        assert after["prefix_wer"] >= before["prefix_wer"]
        assert after["wer"] >= before["wer"]


@given(words=spoken, extra=st.integers(0, 4))
def test_words_after_the_text_are_counted(words: list[str], extra: int) -> None:
    found = errors(" ".join(words), " ".join(words + ["xylophone"] * extra))
    assert (found["extra_words"], found["missing_words"]) == (extra, 0)
    assert found["wer"] == extra / len(words)


def test_numbers_count_as_they_are_written_only_without_the_normaliser() -> None:
    """A "fifty" for "50" is an error of spelling, not of speech: both figures are kept, under names of their own."""
    heard = errors("The primary coil has fifty turns.", "the primary coil has 50 turns")
    assert heard["wer"] == heard["prefix_wer"] == 0
    assert heard["wer_plain"] == pytest.approx(1 / 6)
    assert errors("(sigh) It’s Anna's.", "it's annas")["wer_plain"] == pytest.approx(1 / 2)


@given(said=spoken, heard=spoken)
def test_errors_of_a_whole_transcript_are_those_of_its_rate(said: list[str], heard: list[str]) -> None:
    text, transcript = " ".join(said), " ".join(heard)
    rate = errors(text, transcript)["wer"]
    assert word_errors(reference_of(text), transcript) == pytest.approx(rate * len(said))
    assert word_errors(reference_of("[laughs]"), transcript) == len(heard)
