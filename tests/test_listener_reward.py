"""The lattice and the reward on hand-made log-probabilities: an ideal recogniser, so every figure can be worked out."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scorers.builtin.prefix import WORST, advance, open_lattice
from scorers.builtin.reward import DONE, GRACE_SECONDS, PACE, SLOWEST, Terms, judge
from scorers.builtin.symbols import CLASSES
from scorers.builtin.target import Target, lanes_of

CPU = torch.device("cpu")
SURE = 20.0


def target(sounds: list[int], pace: float = 0.08) -> Target:
    return Target(sounds, [0] * len(sounds), ["word"], [pace * i for i in range(len(sounds) + 1)])


def spoken(sounds: list[int], blanks: int = 2, lead: int = 0) -> Tensor:
    """Log-probabilities [T, CLASSES] of a recogniser that is sure: each sound in one step, blanks between."""
    path = [0] * lead
    for sound in sounds:
        path += [sound] + [0] * blanks
    scores = torch.full((len(path), CLASSES), -SURE)
    scores[torch.arange(len(path)), torch.tensor(path, dtype=torch.int64)] = 0.0
    return scores


def judged(rows: list[Tensor], goal: Target, finished: bool, seconds: float = 0.0) -> Terms:
    lanes = lanes_of([goal], len(rows), CPU)
    steps = torch.tensor([len(row) for row in rows])
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    _, ahead = advance(open_lattice(lanes), lanes, padded, steps, steps)
    return judge(ahead, lanes, torch.full((len(rows),), seconds), torch.full((len(rows),), finished))


GOAL = [3, 7, 9, 9, 12, 5, 30, 21]


def test_flawless_speech_costs_nothing_at_any_point() -> None:
    rows = [spoken(GOAL[:said]) for said in range(1, len(GOAL) + 1)]
    terms = judged(rows, target(GOAL), finished=False)
    torch.testing.assert_close(terms.match, torch.zeros(len(rows)), atol=1e-5, rtol=0)
    torch.testing.assert_close(terms.progress, torch.arange(1, len(GOAL) + 1) / len(GOAL))


@pytest.mark.parametrize(
    ("said", "errors"),
    [
        ([3, 7, 9, 9, 12, 5, 30, 21], 0),
        ([3, 8, 9, 9, 12, 5, 30, 21], 1),  # mis-said
        ([3, 7, 9, 9, 5, 30, 21], 1),  # missing
        ([3, 7, 9, 12, 5, 30, 21], 1),  # one of two equal sounds is missing
        ([3, 7, 9, 9, 12, 14, 5, 30, 21], 1),  # extra
        ([3, 7, 3, 7, 9, 9, 12, 5, 30, 21], 2),  # said twice
        ([3, 7, 9, 9, 12, 5, 30, 21, 1, 2, 4], 3),  # babble after the end
        ([3, 7, 9, 9, 12], 3),  # stopped early
        ([], 8),
    ],
)
def test_a_clear_error_costs_one_sound(said: list[int], errors: int) -> None:
    row = spoken(said, lead=30)
    assert float(judged([row], target(GOAL), finished=True).reward) == pytest.approx(
        (DONE - errors) / len(GOAL), abs=1e-3
    )


def test_a_row_that_stopped_early_loses_to_a_sibling_on_track_and_one_that_babbles_to_one_that_stopped() -> None:
    goal = target(GOAL)
    early = judged([spoken(GOAL[:5])], goal, finished=True, seconds=0.4).reward
    on_track = judged([spoken(GOAL[:5])], goal, finished=False, seconds=0.4).reward
    stopped = judged([spoken(GOAL)], goal, finished=True, seconds=0.8).reward
    babbling = judged([spoken([*GOAL, 14, 2])], goal, finished=False, seconds=0.8).reward
    assert early < on_track < stopped
    assert babbling < stopped


def test_silence_falls_behind_but_a_due_pause_is_free() -> None:
    pause = Target([3, 7], [0, 1], ["a", "b"], [0.0, 0.1, 0.9])
    silent = torch.cat([spoken([3]), spoken([], lead=40)])
    slow = GRACE_SECONDS + SLOWEST * 0.1
    assert float(judged([silent], pause, finished=False, seconds=slow).pace) == 0.0
    late = judged([silent], pause, finished=False, seconds=slow + 0.5)
    assert float(late.pace) == pytest.approx(-PACE * 0.5 / 2)
    said = judged([torch.cat([silent, spoken([7])])], pause, finished=False, seconds=slow + 0.5)
    assert float(said.pace) == 0.0


def test_doubt_costs_less_than_an_error() -> None:
    doubtful = spoken(GOAL)
    doubtful[3, :] = -SURE
    doubtful[3, 7], doubtful[3, 8] = math.log(0.4), math.log(0.6)
    terms = judged([doubtful], target(GOAL), finished=True)
    assert float(terms.match) == pytest.approx(math.log(0.4 / 0.6) / WORST / len(GOAL), abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_more_errors_never_raise_the_reward(data: st.DataObject) -> None:
    sounds = data.draw(st.lists(st.integers(1, 6), min_size=4, max_size=12))
    places = data.draw(st.permutations(range(len(sounds))))
    finished = data.draw(st.booleans())
    said, rewards = list(sounds), []
    for place in [None, *places]:
        if place is not None:
            said[place] = 20 + place  # a sound that the text does not have
        terms = judged([spoken(said)], target(sounds), finished, seconds=1.0)
        rewards.append(float(terms.match + terms.end))
    assert all(after < before + 1e-4 for before, after in pairwise(rewards))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 2**31))
def test_the_lattice_does_not_know_how_steps_were_cut(cuts: list[int], seed: int) -> None:
    scores = torch.randn(1, 30, CLASSES, generator=torch.Generator().manual_seed(seed)).mul(3).log_softmax(-1)
    lanes = lanes_of([target(GOAL)], 1, CPU)
    whole, _ = advance(open_lattice(lanes), lanes, scores, torch.tensor([30]), torch.tensor([30]))
    forward, at = open_lattice(lanes), 0
    for size in [*cuts, 30]:
        part = scores[:, at : at + size]
        steps = torch.tensor([part.shape[1]])
        forward, _ = advance(forward, lanes, part, steps, steps)
        at = min(30, at + size)
    assert torch.equal(forward, whole)


def test_imagined_steps_leave_the_kept_lattice_alone() -> None:
    scores = torch.randn(2, 20, CLASSES, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    lanes = lanes_of([target(GOAL)], 2, CPU)
    real = torch.tensor([12, 7])
    kept, ahead = advance(open_lattice(lanes), lanes, scores, real, torch.tensor([20, 7]))
    alone, _ = advance(open_lattice(lanes), lanes, scores[:, :12], real, real)
    assert torch.equal(kept, alone)
    assert not torch.equal(ahead[0], kept[0])
    assert torch.equal(ahead[1], kept[1])
