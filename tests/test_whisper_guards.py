"""Whisper as a head with a recogniser by script: gates, guards, windows and batches, without any weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scorers.heads import Clip, Judgement
from search.request import SpeechRequest

pytest.importorskip("jiwer", reason="pip install 'chunksearch[whisper]'")
pytest.importorskip("whisper_normalizer", reason="pip install 'chunksearch[whisper]'")
from scorers.whisper.decoded import Decoded
from scorers.whisper.guards import REPEATS, is_no_speech, token_budget, without_loops
from scorers.whisper.languages import CODES, code_of, name_of
from scorers.whisper.scorer import WhisperHead
from scorers.whisper.sound import SAMPLE_RATE, ends_in_sound, quietest, silence_in
from scorers.whisper.windows import LONGEST, TRAILING, batches, context_seconds, windows

Sound = NDArray[np.float32]
TEXT = "The tall man walks."
CLEAR = Decoded(TEXT, tokens=5, log_probability=-0.1, no_speech=0.01)


def chirps(seconds: float, seed: int = 0) -> Sound:
    """Tones that jump from band to band every 100 ms: to the gate it moves like speech."""
    samples = round(seconds * SAMPLE_RATE)
    pitch = np.random.default_rng(seed).choice([200.0, 600.0, 1500.0, 3000.0], 1 + samples // 1600)
    return (0.1 * np.sin(2 * np.pi * np.cumsum(np.repeat(pitch, 1600)[:samples]) / SAMPLE_RATE)).astype(np.float32)


def white(seconds: float, level: float) -> Sound:
    return (np.random.default_rng(1).normal(size=round(seconds * SAMPLE_RATE)) * level).astype(np.float32)


def coloured(seconds: float, level: float, breath: bool) -> Sound:
    """Pink noise; or a breath: noise around 1500 Hz that swells and fades."""
    samples = round(seconds * SAMPLE_RATE)
    frequencies = np.fft.rfftfreq(samples, 1 / SAMPLE_RATE)
    colour = np.exp(-(np.log(np.maximum(frequencies, 1) / 1500) ** 2))
    gain = colour if breath else 1 / np.sqrt(np.maximum(frequencies, 20))
    noise = np.fft.irfft(np.fft.rfft(white(seconds, 1.0)) * gain, samples) * (np.hanning(samples) if breath else 1)
    return (noise / noise.std() * level).astype(np.float32)


@dataclass
class Scripted:
    """Says the same of every window, and remembers what it was given."""

    says: Decoded = CLEAR
    multilingual: bool = True
    name: str = "scripted"
    calls: list[tuple[int, int, str]] = field(default_factory=list)

    def decode(self, clips: Sequence[Sound], seconds: int, language: str, timed: bool) -> list[Decoded]:
        assert all(len(clip) <= seconds * SAMPLE_RATE for clip in clips)
        self.calls.append((len(clips), seconds, language))
        return [replace(self.says, words=(("tall", 0.1, 0.4),) if timed else ()) for _ in clips]


def judged(recogniser: Scripted, *sounds: Sound, text: str = TEXT, finished: bool = True) -> list[Judgement]:
    head = WhisperHead(recogniser, torch.device("cpu"))
    wanted = head.prepare(SpeechRequest(text))
    return head.judge([Clip(sound, 0, finished, wanted) for sound in sounds])


@pytest.mark.parametrize("seconds", [0.02, 0.8, 3.0, 12.0])
@pytest.mark.parametrize("level", [0.0, 1e-4, 1e-2, 0.2])
def test_silence_and_noise_are_never_given_to_the_recogniser(seconds: float, level: float) -> None:
    recogniser = Scripted(replace(CLEAR, text="Thank you."))
    sounds = [white(seconds, level)]
    if level:
        sounds += [coloured(seconds, level, breath) for breath in (False, True)]
    for one in judged(recogniser, *sounds):
        assert one.note["transcript"] == ""
        assert one.note["guards"][0] in ("too short", "silence", "steady noise")
        assert one.terms["wer"] == 1
        assert one.terms["confidence"] == -1.0
    assert not recogniser.calls


def test_hum_is_steady_and_what_moves_is_not() -> None:
    hum = (0.1 * np.sin(2 * np.pi * 50 * np.arange(16_000) / SAMPLE_RATE)).astype(np.float32)
    assert silence_in(hum) == "steady noise"
    assert silence_in(chirps(0.8)) == ""
    assert silence_in(1e-4 * chirps(0.8)) == "silence"


def test_a_pause_at_the_end_is_heard() -> None:
    assert ends_in_sound(chirps(1.0))
    assert not ends_in_sound(np.concatenate([chirps(1.0), np.zeros(3200, np.float32)]))
    assert not ends_in_sound(np.zeros(100, np.float32))


def test_prefixes_are_decoded_in_one_batch_and_silent_ones_left_out() -> None:
    recogniser = Scripted()
    found = judged(recogniser, chirps(0.8), np.zeros(12_800, np.float32), *[chirps(1 + k / 4) for k in range(6)])
    assert recogniser.calls == [(7, 10, "en")]
    assert [one.note["transcript"] for one in found] == [TEXT, "", *[TEXT] * 6]


@given(seconds=st.floats(0.01, 30.0))
def test_the_padded_length_leaves_silence_and_is_the_clips_own(seconds: float) -> None:
    context = context_seconds(round(seconds * SAMPLE_RATE))
    assert context <= LONGEST
    assert context % 5 == 0
    assert context >= min(LONGEST, seconds + TRAILING)


@given(keys=st.lists(st.tuples(st.sampled_from([10, 15, 30]), st.sampled_from(["en", "de"])), max_size=80))
def test_batches_cover_every_window_once_with_equal_keys(keys: list[tuple[int, str]]) -> None:
    found = list(batches(keys))
    assert sorted(place for _, places in found for place in places) == list(range(len(keys)))
    assert all(keys[place] == key for key, places in found for place in places)
    assert all(len(places) * key[0] ** 2 <= 3200 for key, places in found)


def test_long_audio_is_cut_where_it_is_quiet_and_joined() -> None:
    pause = np.zeros(8000, np.float32)
    sound = np.concatenate([chirps(25), pause, chirps(27, 1), pause, chirps(4, 2)])
    pieces = list(windows(sound))
    assert np.array_equal(np.concatenate(pieces), sound)
    edges = np.cumsum([len(piece) for piece in pieces])[:-1] / SAMPLE_RATE
    assert [25 <= edges[0] <= 25.5, 52.5 <= edges[1] <= 53] == [True, True]
    recogniser = Scripted()
    (one,) = judged(recogniser, sound, text=" ".join([TEXT] * 3))
    assert one.terms["wer"] == 0
    assert sum(count for count, _, _ in recogniser.calls) == 3
    assert quietest(sound, 20 * SAMPLE_RATE, 30 * SAMPLE_RATE) == edges[0] * SAMPLE_RATE


def test_timestamps_of_later_windows_start_where_the_window_does() -> None:
    head = WhisperHead(Scripted(), torch.device("cpu"), word_timestamps=True)
    sound = np.concatenate([chirps(25), np.zeros(8000, np.float32), chirps(10, 1)])
    wanted = head.prepare(SpeechRequest(TEXT))
    (one,) = head.judge([Clip(sound, 0, True, wanted)])
    (_, first, _), (_, second, last) = one.note["words"]
    assert first == pytest.approx(0.1)
    assert 25.1 <= second < last <= len(sound) / SAMPLE_RATE


@pytest.mark.parametrize("no_speech", [0.9, float("nan")])
def test_made_up_words_are_dropped_also_when_no_speech_is_no_number(no_speech: float) -> None:
    made_up = Decoded("Thank you.", tokens=3, log_probability=-1.5, no_speech=no_speech)
    (one,) = judged(Scripted(made_up), chirps(1.0))
    assert (one.note["transcript"], one.note["guards"]) == ("", ["no speech"])
    assert not is_no_speech(no_speech, -0.3)
    assert not is_no_speech(0.1, -1.5)


def test_probabilities_that_are_no_numbers_judge_nothing() -> None:
    broken = replace(CLEAR, log_probability=float("nan"))
    (one,) = judged(Scripted(broken), chirps(1.0))
    assert all(np.isnan(value) for value in one.terms.values())
    assert "not finite" in one.note["not_judged"]


def test_loops_are_cut_but_repeated_words_are_heard() -> None:
    assert without_loops(["the", "the", "tall", "man"]) == ["the", "the", "tall", "man"]
    assert without_loops(("go home. " * 20).split()) == ["go", "home."] * REPEATS
    looping = replace(CLEAR, text=" ".join([TEXT] * 12), cut=True)
    (one,) = judged(Scripted(looping), chirps(2.0))
    assert one.note["guards"] == ["too many tokens", "a loop"]
    assert one.terms["extra_words"] == 4 * (REPEATS - 1)
    (one,) = judged(Scripted(replace(looping, cut=False)), chirps(12.0), text=" ".join([TEXT] * 12))
    assert "guards" not in one.note
    assert one.terms["wer"] == 0


@given(words=st.lists(st.sampled_from("abcd"), max_size=40))
def test_cutting_loops_never_invents_and_is_done_once(words: list[str]) -> None:
    kept = without_loops(words)
    assert len(kept) <= len(words)
    assert without_loops(kept) == kept


def test_more_audio_may_hold_more_tokens() -> None:
    assert [token_budget(seconds) for seconds in (0.0, 0.8, 30.0)] == [8, 16, 308]


def test_stage_directions_are_noted_and_confidence_is_a_mean() -> None:
    (one,) = judged(Scripted(), chirps(1.0), text="(sigh) The tall man walks.")
    assert one.note["stage_directions"] == ["(sigh)"]
    assert one.terms["wer"] == 0
    assert one.terms["confidence"] == pytest.approx(-0.1)


def test_languages_by_name_and_code() -> None:
    assert (code_of("English"), code_of(" de "), name_of("yue")) == ("en", "de", "cantonese")
    assert len(CODES) == 100
    with pytest.raises(ValueError, match="'Klingon' is not known to Whisper; allowed are afrikaans"):
        code_of("Klingon")


def test_an_english_model_refuses_other_languages() -> None:
    head = WhisperHead(Scripted(multilingual=False), torch.device("cpu"))
    assert head.prepare(SpeechRequest("Hello.", language="English")).language == "en"
    with pytest.raises(ValueError, match="'german'"):
        head.prepare(SpeechRequest("Hallo.", language="German"))


def test_a_batch_of_several_languages_is_decoded_by_language() -> None:
    recogniser = Scripted()
    head = WhisperHead(recogniser, torch.device("cpu"))
    wanted = [head.prepare(SpeechRequest(TEXT, language=language)) for language in ("German", None, "German")]
    head.judge([Clip(chirps(1.0), 0, True, one) for one in wanted])
    assert recogniser.calls == [(2, 10, "de"), (1, 10, "en")]
