"""The loop on fakes: which candidates go on, by which rewards, and how long audio waits for that."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codec.fake import FakeCodec
from engine.fake import FakeEngine, FakeVoice
from scorers.fake import FakeTaste
from search import ChunkSearch, SearchConfig
from search.config import WHOLE_UTTERANCE
from search.record import Candidates
from tests.fake_search import INF, NAN, TEXT, scripted, search


def test_the_best_reward_is_kept() -> None:
    """Bug report A10: the score was computed and thrown away."""
    result = search(FakeVoice(length=12), scripted((0.6, 0.9, 0.7))).generate(TEXT, n=3, chunk_frames=6)
    assert [step["retained_rows"] for step in result.steps] == [[1], [1], [1]]
    plain = FakeEngine(FakeVoice(length=12)).open([TEXT], 3, SearchConfig().sampling)
    assert torch.equal(result.frames[:6], plain.advance(6).frames[1])


@pytest.mark.parametrize(
    ("rewards", "winner", "judged"),
    [
        ((0.5, NAN, 0.9), 2, [True, False, True]),
        ((NAN, NAN, NAN), 0, [False, False, False]),
        ((-INF, -9.0, INF), 1, [False, True, False]),
        ((0.7, 0.7, 0.1), 0, [True, True, True]),
    ],
)
def test_rewards_that_are_no_number_rank_last_and_are_flagged(
    rewards: tuple[float, ...], winner: int, judged: list[bool]
) -> None:
    """Bug report A8: the scorer gave NaN for a silent clip, and the best row lost."""
    result = search(taste=scripted(rewards)).generate(TEXT, n=3)
    for step in result.steps:
        assert step["retained_rows"] == [winner]
        assert [score["judged"] for score in step["scores"]] == judged
    assert result.status == "complete"


def test_ties_go_to_the_lower_word_error() -> None:
    result = search(taste=scripted((1.0,), prefix_wer=(0.5, 0.25, 0.25))).generate(TEXT, n=3)
    assert result.steps[0]["retained_rows"] == [1]


def test_with_nothing_to_judge_by_a_single_candidate_needs_no_scorer() -> None:
    made = ChunkSearch(FakeEngine())
    result = made.generate(TEXT, n=1)
    assert result.status == "complete"
    assert result.performance["scorer"] is None
    assert result.performance["scorer_device"] is None
    with pytest.raises(ValueError, match="n: 8 candidates cannot be compared without a scorer"):
        made.generate(TEXT)


def test_whole_utterances_are_compared_once_by_the_same_rewards() -> None:
    candidates: list[Candidates] = []
    result = search().generate(TEXT, n=5, chunk_frames=WHOLE_UTTERANCE, on_step=candidates.append)
    assert len(result.steps) == len(candidates) == 1
    rewards = [score["reward"] for score in result.steps[0]["scores"]]
    best = rewards.index(max(rewards))
    assert result.steps[0]["retained_rows"] == [best]
    assert result.performance["whole_utterance"] is True
    only = candidates[0]
    assert np.array_equal(result.audio, only.pcm[best, : only.lengths[best] * 8].numpy())
    for row in range(5):
        mine = search().scorer.open([TEXT], 1, 100, 8)  # type: ignore[union-attr]
        length = only.lengths[row]
        sound = only.pcm[row : row + 1, : length * 8]
        heard = mine.score(sound, torch.tensor([length * 8]), torch.tensor([True]))
        assert float(heard.reward) == rewards[row], "the reward is that of the candidate's own audio"


def test_random_rewards_are_a_control() -> None:
    """A search by chance ranks by what has nothing to do with the audio: two engines, one order."""
    one, two = (search(FakeVoice(books=b, length=9), FakeTaste(chance=True)).generate(TEXT, n=4) for b in (2, 3))
    assert [s["reward"] for s in one.steps[0]["scores"]] == [s["reward"] for s in two.steps[0]["scores"]]
    assert len({s["reward"] for s in one.steps[0]["scores"]}) == 4


@settings(max_examples=30)
@given(n=st.integers(1, 6), data=st.data(), lag=st.sampled_from([None, 0.0, 0.24, 0.8]), chunk=st.integers(1, 8))
def test_the_lag_is_bounded_at_every_step(n: int, data: st.DataObject, lag: float | None, chunk: int) -> None:
    width = data.draw(st.integers(1, n))
    result = search(FakeVoice(stuck=0.1)).generate(
        TEXT, n=n, beam_width=width, chunk_frames=chunk, max_lag_seconds=lag, seed=data.draw(st.integers(0, 9))
    )
    committed = 0.0
    for place, step in enumerate(result.steps):
        committed += step["committed_audio_seconds"]
        assert committed == pytest.approx(step["committed_until_seconds"])
        kept = step["retained_rows"]
        assert 1 <= len(kept) <= width
        assert set(step["parents"]) == set(kept)
        before = result.steps[place - 1]["committed_until_seconds"] if place else 0.0
        tails = [before + step["lengths"][row] * 0.08 - step["committed_until_seconds"] for row in kept]
        assert min(tails) >= -1e-9, "more was committed than a kept row has"
        if lag is not None:
            assert max(tails) <= lag + 1e-9, "audio waits for longer than was allowed"
        if width == 1:
            assert max(tails) <= 1e-9, "one beam has nothing to wait for"
    assert committed == pytest.approx(result.seconds)


def test_the_lag_bounds_the_first_audio() -> None:
    """Beams that differ from the first frame on commit nothing until the end, unless a lag is set."""
    voice, wide = FakeVoice(length=40, codes=1024), {"n": 4, "beam_width": 4, "chunk_frames": 5}
    equal = scripted((0.0,))
    waits = [s["committed_until_seconds"] for s in search(voice, equal).generate(TEXT, **wide).steps]
    assert waits[:4] == [0.0] * 4
    bounded = search(voice, equal).generate(TEXT, max_lag_seconds=0.8, **wide).steps
    assert [s["committed_until_seconds"] for s in bounded[:3]] == pytest.approx([0.0, 0.0, 1.2])


def test_a_first_chunk_of_its_own_length() -> None:
    result = search(FakeVoice(length=14)).generate(TEXT, n=2, first_chunk_frames=2, chunk_frames=6)
    assert [step["frame"] for step in result.steps] == [2, 8, 14, 14]


def test_step_parents_give_the_ancestry_of_the_winner() -> None:
    """Every row's uncommitted frames begin with those of the row that the step before names as its parent."""
    steps: list[Candidates] = []
    result = search().generate(TEXT, n=5, beam_width=3, chunk_frames=3, seed=3, on_step=steps.append)
    assert len(steps) > 4
    whole: list[list[torch.Tensor]] = []
    for place, step in enumerate(steps):
        tails = [step.frames[row, :length] for row, length in enumerate(step.lengths)]
        rows = [torch.cat([result.frames[: step.start_frame], tail]) for tail in tails]
        if place:
            for row, parent in enumerate(steps[place - 1].record["parents"]):
                assert torch.equal(rows[row][: len(whole[-1][parent])], whole[-1][parent])
        whole.append(rows)
        for row, length in enumerate(step.lengths):
            assert len(rows[row]) == step.start_frame + length
            sound = torch.from_numpy(result.audio[: step.start_frame * 8])
            offline = FakeCodec().decode(rows[row])
            assert torch.equal(offline, torch.cat([sound, step.pcm[row, : length * 8]]))
    winner = steps[-1].record["retained_rows"][0]
    assert torch.equal(whole[-1][winner], result.frames)
    for step in reversed(steps[:-1]):
        winner = step.record["parents"][winner]
        assert winner in step.record["retained_rows"]
