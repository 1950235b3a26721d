"""What people read of the listener: words right, mis-said, missing and extra, against the prefix that fits best."""

import pytest
import torch

from scorers.builtin.free import Sound, open_reading, read_on, sounds_of
from scorers.builtin.reading import align
from scorers.builtin.symbols import BLANK, CLASSES, LETTERS, class_of, spelled
from scorers.builtin.target import Target, target_of

WORDS = {"the": "ðə", "black": "blæk", "cat": "kæt", "sleeps": "slips"}


def sounds(letters: str) -> list[int]:
    return [LETTERS.index(letter) for letter in letters]


def sure(letters: str) -> list[Sound]:
    return [Sound(found, 1 << found) for found in sounds(letters)]


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
    reading = align(sure(heard), target(), finished)
    assert (reading.transcript, reading.errors, reading.words) == (transcript, errors, words)
    assert reading.wer == errors / max(1, words)


def test_doubt_is_decided_in_favour_of_the_text() -> None:
    heard = sure("ðəblækkætslips")
    heard[5] = Sound(LETTERS.index("b"), 1 << LETTERS.index("b") | 1 << LETTERS.index("k"))
    heard.insert(3, Sound(LETTERS.index("m"), 1 << LETTERS.index("m") | 1 << BLANK))
    assert align(heard, target(), finished=True).transcript == "the black cat sleeps"
    del heard[8]
    assert align(heard, target(), finished=True).transcript == "the black /kt/ sleeps"


def test_the_free_reading_grows_as_if_it_had_been_read_at_once() -> None:
    scores = torch.randn(2, 40, CLASSES, generator=torch.Generator().manual_seed(0)).mul(4).log_softmax(-1)
    once = read_on(open_reading(2, torch.device("cpu")), scores, torch.tensor([40, 31]))
    parts = open_reading(2, torch.device("cpu"))
    for start in range(0, 40, 10):
        parts = read_on(parts, scores[:, start : start + 10], torch.tensor([10, 1 if start == 30 else 10]))
    assert sounds_of(once.heard) == sounds_of(parts.heard)
    assert torch.equal(once.last, parts.last)
    assert [len(row) for row in sounds_of(once.heard)] != [0, 0]


def test_a_sound_is_reported_once_and_a_doubtful_one_may_be_nothing() -> None:
    k, t = LETTERS.index("k"), LETTERS.index("t")
    scores = torch.full((1, 5, CLASSES), -9.0)
    scores[0, torch.arange(5), torch.tensor([0, k, k, 0, 0])] = 0.0
    scores[0, 1, t] = scores[0, 4, t] = -1.0
    sounds = sounds_of(read_on(open_reading(1, torch.device("cpu")), scores, torch.tensor([5])).heard)[0]
    assert sounds == [Sound(k, 1 << k | 1 << t), Sound(t, 1 << BLANK | 1 << t)]


def test_babble_counts_though_the_row_goes_on() -> None:
    said = align(sure("ðəblækkætslips" + "mɔɹmɔɹ"), target(), finished=False)
    assert said.errors >= 1


def test_stress_spaces_and_punctuation_are_no_sounds() -> None:
    stress, space, full_stop, k, schwa, small_schwa = 156, 16, 4, 53, 83, 42
    assert [class_of(stress), class_of(space), class_of(full_stop)] == [0, 0, 0]
    assert class_of(k) > 0
    assert class_of(small_schwa) == class_of(schwa)
    assert spelled([class_of(k), class_of(schwa)]) == "kə"


def test_a_target_knows_its_words_and_when_they_are_due() -> None:
    seconds = torch.zeros(180)
    seconds[[53, 83, 16, 3]] = torch.tensor([0.1, 0.2, 0.05, 0.3])
    built = target_of([("a", (83, 3, 16)), ("-", (4,)), ("k", (53,))], seconds)
    assert (built.words, built.word_of) == (["a", "k"], [0, 1])
    assert built.due == pytest.approx([0.0, 0.2, 0.65])
