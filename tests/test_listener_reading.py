"""What people read of the listener: words right, mis-said, missing and extra, against the prefix that fits best."""

import pytest
import torch

from scorers.builtin.reading import align
from scorers.builtin.symbols import LETTERS, class_of, classes_of, spelled
from scorers.builtin.target import Target, target_of

WORDS = {"the": "ðə", "black": "blæk", "cat": "kæt", "sleeps": "slips"}


def sounds(letters: str) -> list[int]:
    return [LETTERS.index(letter) for letter in letters]


def target() -> Target:
    classes = [sounds(said) for said in WORDS.values()]
    word_of = [number for number, word in enumerate(classes) for _ in word]
    return Target([sound for word in classes for sound in word], word_of, list(WORDS), [0.0])


@pytest.mark.parametrize(
    ("heard", "finished", "transcript", "errors", "words"),
    [
        ("ðəblækkætslips", True, "the black cat sleeps", 0, 4),
        ("ðəblækbætslips", True, "the black /bæt/ sleeps", 1, 4),
        ("ðəblækslips", True, "the black sleeps", 1, 4),
        ("ðəblækblækkætslips", True, "the /blæk/ black cat sleeps", 1, 4),
        ("ðəblækkætslipsɡʊdnWəndmɔɹ", True, "the black cat sleeps /ɡʊdnWəndmɔɹ/", 3, 4),
        ("ðəblæk", True, "the black", 2, 4),
        ("", True, "", 4, 4),
        ("", False, "", 0, 0),
        ("ðəblæk", False, "the black", 0, 2),
        ("ðəblækk", False, "the black cat…", 0, 2),
        ("ðəblækb", False, "the black /b/", 0, 2),  # the word being spoken is free
        ("ðəblækbæts", False, "the black /bæt/ sleeps…", 1, 3),
    ],
)
def test_words(heard: str, finished: bool, transcript: str, errors: int, words: int) -> None:
    reading = align(sounds(heard), target(), finished)
    assert (reading.transcript, reading.errors, reading.words) == (transcript, errors, words)
    assert reading.wer == errors / max(1, words)


def test_babble_counts_though_the_row_goes_on() -> None:
    said = align(sounds("ðəblækkætslips" + "mɔɹmɔɹ"), target(), finished=False)
    assert said.errors >= 1


def test_stress_spaces_and_punctuation_are_no_sounds() -> None:
    stress, space, full_stop, k, schwa, small_schwa = 156, 16, 4, 53, 83, 42
    assert classes_of([stress, k, space, full_stop]) == [class_of(k)]
    assert class_of(small_schwa) == class_of(schwa)
    assert spelled(classes_of([k, schwa])) == "kə"


def test_a_target_knows_its_words_and_when_they_are_due() -> None:
    seconds = torch.zeros(180)
    seconds[[53, 83, 16, 3]] = torch.tensor([0.1, 0.2, 0.05, 0.3])
    built = target_of([("a", (83, 3, 16)), ("-", (4,)), ("k", (53,))], seconds)
    assert (built.words, built.word_of) == (["a", "k"], [0, 1])
    assert built.due == pytest.approx([0.0, 0.2, 0.65])
