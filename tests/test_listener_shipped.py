"""The shipped listener on the speech of its teacher, which the front end's package brings along."""

from functools import lru_cache

import pytest
import torch
from torch import Tensor

from scorers import load_scorer
from scorers.builtin.scorer import Listener
from scorers.builtin.weights import WEIGHTS
from search.protocols import Scores
from search.request import SpeechRequest

RATE, HOP = 24_000, 1920
SENTENCES = ("The kettle is on the stove.", "Please water the plants tomorrow.", "We met an old friend at the market.")


@lru_cache(maxsize=1)
def listener() -> Listener:
    scorer = load_scorer("listener")
    assert isinstance(scorer, Listener)
    return scorer


@lru_cache(maxsize=8)
def speech(text: str) -> Tensor:
    from hibari import Hibari

    return torch.from_numpy(Hibari()(text, seed=0)).float()


def heard(text: str, pcm: Tensor, finished: bool = True, chunk: int = 10 * HOP) -> Scores:
    stream = listener().open([SpeechRequest(text=text)], 1, RATE, HOP)
    for start in range(0, len(pcm), chunk):
        part = pcm[None, start : start + chunk]
        over = finished and start + chunk >= len(pcm)
        scores = stream.score(part, torch.tensor([part.shape[1]]), torch.tensor([over]))
    return scores


@pytest.mark.parametrize("text", SENTENCES)
def test_it_understands_its_teacher(text: str) -> None:
    scores = heard(text, speech(text))
    assert float(scores.heads["progress"]) == 1.0
    assert float(scores.reward) > -0.1
    assert float(scores.heads["prefix_wer"]) <= 0.2


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("The kettle is on the stove.", 0),
        ("The kettle is on the chair.", 1),
        ("The kettle is not on the stove.", 1),
        ("The big kettle is on the new stove.", 2),
        ("Please water the plants tomorrow.", 4),
    ],
)
def test_the_further_the_text_the_lower_the_reward(text: str, errors: int) -> None:
    right = heard(SENTENCES[0], speech(SENTENCES[0]))
    asked = heard(text, speech(SENTENCES[0]))
    assert asked.notes[0]["word_errors"] >= errors
    assert float(right.reward - asked.reward) >= 0.03 * errors


def test_words_said_twice_or_cut_off_cost() -> None:
    text = SENTENCES[1]
    pcm = speech(text)
    right, twice = heard(text, pcm), heard(text, torch.cat([pcm, pcm]))
    cut = heard(text, pcm[: len(pcm) // 2])
    open_end = heard(text, pcm[: len(pcm) // 2], finished=False)
    assert float(twice.reward) < float(right.reward) - 0.5
    assert float(cut.reward) < float(open_end.reward) - 0.2
    assert float(open_end.reward) > -0.1


def test_silence_is_empty_and_falls_behind() -> None:
    text = SENTENCES[2]
    silent = heard(text, torch.zeros(2 * RATE), finished=False)
    hiss = heard(text, torch.randn(2 * RATE, generator=torch.Generator().manual_seed(0)) * 1e-3, finished=False)
    spoken = heard(text, speech(text)[: 2 * RATE], finished=False)
    assert silent.notes[0]["transcript"] == ""
    assert max(float(silent.reward), float(hiss.reward)) < float(spoken.reward) - 0.1


def test_cutting_the_audio_otherwise_changes_no_judgement() -> None:
    text = SENTENCES[2]
    pcm = speech(text)
    whole = heard(text, pcm, chunk=len(pcm))
    for chunk in (HOP, 1234, 20 * HOP):
        parts = heard(text, pcm, chunk=chunk)
        torch.testing.assert_close(parts.reward, whole.reward, atol=1e-3, rtol=0)
        assert parts.notes == whole.notes


def test_it_is_small() -> None:
    assert WEIGHTS.stat().st_size <= 4_000_000
    assert sum(value.numel() for value in listener().network.parameters()) <= 2_000_000
