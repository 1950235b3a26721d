"""The loop on fakes: how utterances end, and what limits them."""

from typing import Any

import numpy as np
import pytest
import torch

from codec.fake import FakeCodec
from engine.fake import NEVER, FakeEngine, FakeVoice
from scorers.fake import FakeScorer
from search import ChunkSearch, SpeechRequest
from search.config import WHOLE_UTTERANCE
from search.state import BranchCache
from tests.fake_search import TEXT, all_closed, search


def test_an_utterance_that_ends_is_complete() -> None:
    result = search().generate(TEXT, n=4)
    assert result.status == "complete"
    assert result.performance["hit_frame_limit"] is False
    assert len(result.frames) >= 18


@pytest.mark.parametrize("temperature", [0.0, 0.2, 1.0])
def test_an_utterance_that_never_ends_hits_the_limit_and_says_so(temperature: float) -> None:
    """Bug reports D1, D2: minutes of murmur came back as "completed", and a lower temperature made it worse."""
    result = search(FakeVoice(length=NEVER)).generate(TEXT, n=4, temperature=temperature, max_seconds=2.0)
    assert result.status == "hit_frame_limit"
    assert result.performance["hit_frame_limit"] is True
    assert len(result.frames) == 25
    assert result.seconds == 2.0


def test_without_max_seconds_the_budget_of_the_engine_holds() -> None:
    result = search(FakeVoice(length=NEVER)).generate(TEXT, n=2)
    assert len(result.frames) == FakeEngine().budget(TEXT)
    assert result.performance["max_seconds"] == len(result.frames) * 0.08


def test_a_sibling_that_stops_is_preferred_to_one_that_is_stuck() -> None:
    """Bug report D1: the silent state absorbs some rows; with a scorer that hears it, most searches still end."""
    voice, seeds = FakeVoice(stuck=0.04), range(12)
    plain, heard = ChunkSearch(FakeEngine(voice)), ChunkSearch(FakeEngine(voice, FakeCodec(hop=60)), SilenceHater())
    stuck = [seed for seed in seeds if plain.generate(TEXT, n=1, seed=seed).status == "hit_frame_limit"]
    assert len(stuck) >= 5, "the fake must get stuck in a good part of the takes for this to mean something"
    settings = {"n": 8, "beam_width": 4, "chunk_frames": 6}
    still = [seed for seed in stuck if heard.generate(TEXT, seed=seed, **settings).status == "hit_frame_limit"]
    assert len(still) <= len(stuck) / 3


class SilenceHater(FakeScorer):
    """Rewards rows whose last two frames differ in more than their level, and those that have finished."""

    def open(self, requests: Any, n: int, sample_rate: int, hop: int) -> Any:
        stream = super().open(requests, n, sample_rate, hop)
        score = stream.score

        def alive(pcm: torch.Tensor, lengths: torch.Tensor, finished: torch.Tensor) -> Any:
            scores = score(pcm, lengths, finished)
            frames = pcm.unflatten(1, (-1, hop))
            shape = frames - frames.mean(2, keepdim=True)
            moves = (shape[:, -1] - shape[:, -2]).abs().amax(1) > 1e-6 if frames.shape[1] > 1 else finished
            return type(scores)((moves | finished).float(), scores.heads, scores.notes)

        stream.score = alive  # type: ignore[method-assign]
        return stream


def test_one_frame() -> None:
    """Bug report C6: short inputs lost all of their audio, as the end arrived before the payload."""
    heard: list[int] = []
    result = search(FakeVoice(length=1)).generate(TEXT, n=3, on_commit=lambda segment, _: heard.append(len(segment)))
    assert (result.status, len(result.frames), heard) == ("complete", 1, [8])


def test_no_frame_at_all() -> None:
    made = search(FakeVoice(length=0))
    result = made.generate(TEXT, n=3)
    assert (result.status, len(result.frames), len(result.audio)) == ("complete", 0, 0)
    assert result.performance["first_commit_seconds"] is None
    assert result.performance["search_rtf"] is None
    assert all_closed(made)


def test_a_last_chunk_without_frames() -> None:
    """Bug report C6: an empty end leaked the codec's slot. The rows end exactly at a chunk's end, which shows later."""
    made = search(FakeVoice(length=10))
    result = made.generate(TEXT, n=3, chunk_frames=5)
    assert (result.status, len(result.frames)) == ("complete", 10)
    assert [step["committed_audio_seconds"] for step in result.steps] == [0.4, 0.4, 0.0]
    assert all_closed(made)


@pytest.mark.parametrize("chunk_frames", [3, 10, 20, WHOLE_UTTERANCE])
@pytest.mark.parametrize(("length", "status"), [(11, "complete"), (12, "complete"), (13, "hit_frame_limit")])
def test_a_row_that_ends_exactly_at_the_limit_is_complete(length: int, status: str, chunk_frames: int) -> None:
    result = search(FakeVoice(length=length)).generate(TEXT, n=2, max_seconds=0.96, chunk_frames=chunk_frames)
    if chunk_frames == 3 and length == 12:
        status = "hit_frame_limit"  # the chunk ends with the limit, and the row had no chance to say that it is done
    assert (result.status, len(result.frames)) == (status, min(length, 12))


def test_limits_of_batch_mates_are_their_own() -> None:
    short, long = SpeechRequest("a", id="s"), SpeechRequest("a b c d e f", id="l")
    made = search(FakeVoice(length=18))
    budgets = [made.engine.budget(request) for request in (short, long)]
    assert budgets[0] < 18 < budgets[1]
    results = made.generate_batch([short, long, short], n=3, chunk_frames=12)
    assert [(r.status, len(r.frames)) for r in results] == [
        ("hit_frame_limit", budgets[0]),
        ("complete", 18),
        ("hit_frame_limit", budgets[0]),
    ]
    alone = made.generate(short, n=3, chunk_frames=12)
    assert np.array_equal(alone.audio, results[0].audio)
    assert np.array_equal(alone.audio, results[2].audio), "one id and seed, one take"


def test_an_ended_request_costs_its_batch_mates_no_memory() -> None:
    """Tails of requests that have ended must not grow while the others go on."""
    pending: list[int] = []
    made = search(FakeVoice(length=NEVER))
    original = BranchCache.commit

    def commit(cache: BranchCache, frames: torch.Tensor) -> None:
        original(cache, frames)
        pending.append(max(cache.pending))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BranchCache, "commit", commit)
        made.generate_batch([SpeechRequest("a"), SpeechRequest("a " * 40)], n=2, chunk_frames=10)
    assert len(pending) > 20
    assert max(pending) <= 10
