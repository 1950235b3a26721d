"""The loop on fakes: statuses, limits, selection, commits, failures, and the bug reports that concern it."""

import gc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codec.fake import FakeCodec
from engine.fake import NEVER, FakeEngine, FakeVoice
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SearchConfig, SearchFailed, SearchInterrupted, SearchResult, SpeechRequest
from search.config import WHOLE_UTTERANCE
from search.protocols import Chunk
from search.record import Candidates
from search.state import BranchCache
from search.track import Track, hear_all

TEXT = SpeechRequest("one two three four five six", id="six")
NAN, INF = math.nan, math.inf


def search(voice: FakeVoice | None = None, taste: FakeTaste | None = None, **codec: Any) -> ChunkSearch:
    return ChunkSearch(FakeEngine(voice, FakeCodec(**codec)), FakeScorer(taste))


def all_closed(search: ChunkSearch) -> bool:
    parts: list[Any] = [search.engine, search.engine.codec, search.scorer]
    return all(part.opened == part.closed for part in parts)


def scripted(*steps: tuple[float, ...], **more: Any) -> FakeTaste:
    return FakeTaste(script=steps, **more)


# --- ends ------------------------------------------------------------------------------------------------------------


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


# --- selection -------------------------------------------------------------------------------------------------------


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


# --- commits and entry points ----------------------------------------------------------------------------------------


def test_commits_arrive_once_in_order_and_are_the_audio() -> None:
    heard: list[tuple[np.ndarray, dict[str, Any]]] = []
    result = search().generate(
        TEXT, n=4, beam_width=2, chunk_frames=4, on_commit=lambda segment, record: heard.append((segment, record))
    )
    assert np.array_equal(np.concatenate([segment for segment, _ in heard]), result.audio)
    assert [r["step"] for _, r in heard] == sorted({r["step"] for _, r in heard})
    assert all(record is result.steps[record["step"] - 1] for _, record in heard)


def test_streaming_and_collecting_give_the_same() -> None:
    """Bug report C8: the streaming path skipped words that the offline path spoke."""
    config = {"n": 4, "beam_width": 2, "chunk_frames": 3, "seed": 9}
    collected = search().generate(TEXT, **config)
    with search().stream(TEXT, **config) as stream:
        commits = list(stream)
    assert np.array_equal(np.concatenate([c.segment for c in commits]), collected.audio)
    assert torch.equal(stream.result.frames, collected.frames)
    assert all(commit.request is TEXT and commit.index == 0 for commit in commits)
    assert [commit.row for commit in commits] == [commit.record["retained_rows"][0] for commit in commits]
    walls = [commit.wall_seconds for commit in commits]
    assert walls == sorted(walls)


def test_a_config_and_overrides_meet() -> None:
    config = SearchConfig(n=2, seed=5)
    result = search().generate(TEXT, config, seed=6)
    assert (result.config.n, result.config.seed) == (2, 6)
    assert np.array_equal(result.audio, search().generate(TEXT, n=2, seed=6).audio)
    assert not np.array_equal(result.audio, search().generate(TEXT, config).audio)


def test_unknown_overrides_name_what_is_allowed() -> None:
    """Bug report E16: an entry point dropped `guidance`, and a sweep over it gave identical tables."""
    for call in (search().generate, search().stream):
        with pytest.raises(
            TypeError, match="beams: not a setting of a search; allowed are n, beam_width, chunk_frames"
        ):
            call(TEXT, beams=3)
    with pytest.raises(ValueError, match=r"beam_width: 3 is out of range; allowed is 1 to n = 2"):
        search().generate(TEXT, n=2, beam_width=3)
    with pytest.raises(ValueError, match="requests: empty"):
        search().generate_batch([])


def test_engine_and_codec_must_agree() -> None:
    engine = FakeEngine()
    engine.hop = 9
    with pytest.raises(ValueError, match="hop: engine 'fake' has 9, its codec 8"):
        ChunkSearch(engine, FakeScorer())


@pytest.mark.parametrize("deficit", [1, 555])
def test_short_codec_output_is_an_error(deficit: int) -> None:
    """Bug report C1: the vocoder came out 555 samples short, a click every 0.8 s and 1.2 % of the clip."""
    made = search(hop=60, output_deficit=deficit)
    with pytest.raises(SearchFailed, match=r"codec of 'fake': PCM of shape \(2, .*\) for frames that need \(2, 600\)"):
        made.generate(TEXT, n=2)
    assert all_closed(made)


def test_decoding_and_searching_while_a_search_runs() -> None:
    """Bug report C7: encoding a reference while a stream was open on the same codec object corrupted both."""
    made = search()
    quiet = made.generate(TEXT, n=3, chunk_frames=4)

    def busy(_: np.ndarray, record: dict[str, Any]) -> None:
        made.engine.codec.decode(torch.randint(0, 32, (7, 3)))
        if record["step"] == 1:
            made.generate(SpeechRequest("something else"), n=2)

    assert np.array_equal(made.generate(TEXT, n=3, chunk_frames=4, on_commit=busy).audio, quiet.audio)


def test_two_searches_taken_in_turns() -> None:
    made, config = search(), {"n": 3, "chunk_frames": 4}
    other = SpeechRequest("one two three four", id="four")
    apart = [made.generate(request, **config) for request in (TEXT, other)]
    streams = [made.stream(request, **config) for request in (TEXT, other)]
    live: list[Iterator[Any]] = list(streams)
    while live:
        live = [stream for stream in live if next(stream, None) is not None]
    for stream, alone in zip(streams, apart, strict=True):
        assert np.array_equal(stream.result.audio, alone.audio)


@pytest.mark.parametrize("chunk_frames", [1, 10, 20])
def test_one_row_sounds_the_same_in_any_chunks(chunk_frames: int) -> None:
    """Bug report C4: a ring of exactly `context` entries dropped history that a longer chunk's own frames needed."""
    reference = search().generate(TEXT, n=1, chunk_frames=WHOLE_UTTERANCE)
    assert np.array_equal(search().generate(TEXT, n=1, chunk_frames=chunk_frames).audio, reference.audio)


def test_the_end_of_the_audio_is_that_of_the_offline_decode() -> None:
    """Bug report C5: 40 ms of noise at the very end, in streaming only."""
    result = search(hop=24).generate(TEXT, n=4, chunk_frames=7)
    offline = FakeCodec(hop=24).decode(result.frames).numpy()
    assert np.array_equal(result.audio[-30:], offline[-30:])


@settings(max_examples=25)
@given(n=st.integers(2, 6), width=st.integers(1, 2), chunk=st.integers(1, 12), seed=st.integers(0, 99))
def test_children_hear_their_own_past(n: int, width: int, chunk: int, seed: int) -> None:
    """Bug report A2: nested codec state was not reordered, so a child was decoded with another row's history."""
    result = search().generate(TEXT, n=n, beam_width=width, chunk_frames=chunk, seed=seed)
    assert np.array_equal(result.audio, FakeCodec().decode(result.frames).numpy())


def test_rows_that_end_within_a_chunk_commit_real_frames_only() -> None:
    """Bug report A6: the pads of a row that ended early were counted as committed audio."""
    for width in (1, 2):
        result = search().generate(TEXT, n=4, beam_width=width, chunk_frames=10, seed=2)
        assert len(result.frames) % 10, "this take must end within a chunk"
        assert bool((result.frames >= 0).all()), "a pad code was committed"
        assert sum(s["committed_audio_seconds"] for s in result.steps) == pytest.approx(len(result.audio) / 100)


def test_a_retry_with_another_seed_is_another_take() -> None:
    """Bug report A10: retries reused the seed and were the same audio, bit for bit."""
    takes = {search().generate(TEXT, n=3, seed=seed).audio.tobytes() for seed in range(5)}
    assert len(takes) == 5
    assert search().generate(TEXT, n=3).audio.tobytes() == search().generate(TEXT, n=3).audio.tobytes()


def test_candidates_of_a_small_search_are_the_first_of_a_large_one() -> None:
    """Bug reports B3, B4: the noise of a row moved with N and with what shared the batch."""
    mates = [SpeechRequest("x y", id="x"), TEXT, SpeechRequest("z", id="z")]
    steps: dict[str, Candidates] = {}

    def first(name: str) -> Any:
        def keep(step: Candidates) -> None:
            if step.index == (1 if name == "batch" else 0):
                steps.setdefault(name, step)

        return keep

    search().generate(TEXT, n=4, on_step=first("four"))
    search().generate(TEXT, n=8, on_step=first("eight"))
    search().generate_batch(mates, n=8, on_step=first("batch"))
    assert torch.equal(steps["four"].frames, steps["eight"].frames[:4])
    assert torch.equal(steps["eight"].frames, steps["batch"].frames)
    assert torch.equal(steps["eight"].pcm, steps["batch"].pcm)


@pytest.mark.parametrize("n", [1, 8])
def test_a_prompt_is_read_once_whatever_the_depth(n: int) -> None:
    """Bug report A13: a beam search on top of an engine read the prompt again at each step, at thrice the time."""
    made = search()
    made.generate(TEXT, n=n, chunk_frames=1)
    assert made.engine.prefills == 1  # type: ignore[attr-defined]
    made.generate_batch([TEXT, TEXT], n=n, chunk_frames=2)
    assert made.engine.prefills == 3  # type: ignore[attr-defined]


def test_identity_forks_reach_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug report A5: with one candidate nothing is ever gathered."""
    gathered: list[str] = []
    original = torch.Tensor.index_select

    def index_select(tensor: torch.Tensor, *arguments: Any) -> torch.Tensor:
        gathered.append("gather")
        return original(tensor, *arguments)

    monkeypatch.setattr(torch.Tensor, "index_select", index_select)
    search().generate(TEXT, n=1, chunk_frames=2)
    assert not gathered
    search().generate(TEXT, n=2, chunk_frames=2)
    assert gathered, "the counter counts"


# --- failures --------------------------------------------------------------------------------------------------------


def failing(search: ChunkSearch, **settings: Any) -> SearchFailed:
    with pytest.raises(SearchFailed) as caught:
        search.generate(TEXT, **{"n": 3, "chunk_frames": 4, **settings})
    assert all_closed(search)
    return caught.value


def test_unknown_engine_state_stops_the_search() -> None:
    """Bug report A1: a cache under a name that the reorder did not know was skipped; wrong output, no error."""
    error = failing(search(FakeVoice(alien_state=True)))
    assert isinstance(error.__cause__, TypeError)
    assert "ssm_state" in str(error)


@pytest.mark.parametrize("kind", [RuntimeError, torch.OutOfMemoryError, ValueError])
def test_an_engine_that_fails_loses_nothing(kind: type[Exception]) -> None:
    error = failing(search(FakeVoice(fails_at=9, error=kind)))
    assert type(error.__cause__) is kind
    assert error.partial.status == "failed"
    assert len(error.partial.frames) == 8
    assert len(error.partial.steps) == 2
    assert "told to fail at frame 9" in str(error)
    assert "after 0.64 s of committed audio" in str(error)
    whole = search().generate(TEXT, n=3, chunk_frames=4)
    assert np.array_equal(error.partial.audio, whole.audio[:64])


def test_a_scorer_that_fails_loses_nothing() -> None:
    error = failing(search(taste=FakeTaste(fails_at=3)))
    assert len(error.partial.frames) == 8
    assert error.partial.performance["actual_seconds"] == 0.64


def test_an_interrupt_still_is_one() -> None:
    made = search(taste=FakeTaste(fails_at=2, error=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as caught:
        made.generate(TEXT, n=2)
    assert isinstance(caught.value, SearchInterrupted)
    assert caught.value.partial.seconds == 0.8
    assert all_closed(made)


def test_an_exit_of_the_program_is_not_turned_into_a_failure() -> None:
    made = search(taste=FakeTaste(fails_at=2, error=SystemExit))
    with pytest.raises(SystemExit):
        made.generate(TEXT, n=2)
    assert all_closed(made)

    def leave(*_: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        search().generate(TEXT, n=2, on_commit=leave)


def test_a_callback_that_fails() -> None:
    played: list[np.ndarray] = []

    def play(segment: np.ndarray, _: dict[str, Any]) -> None:
        played.append(segment)
        raise OSError("no sound card")

    error = failing(search(), on_commit=play)
    assert isinstance(error.__cause__, OSError)
    assert len(played) == 1
    assert np.array_equal(error.partial.audio, played[0])


def test_an_observer_that_fails() -> None:
    def look(_: Candidates) -> None:
        raise LookupError("disk full")

    assert isinstance(failing(search(), on_step=look).__cause__, LookupError)


def test_in_a_batch_those_that_had_ended_are_complete() -> None:
    made = search(FakeVoice(fails_at=15))
    with pytest.raises(SearchFailed) as caught:
        made.generate_batch([TEXT, SpeechRequest("hi", id="hi")], n=3, chunk_frames=4)
    assert [partial.status for partial in caught.value.partials] == ["failed", "complete"]
    alone = search().generate(SpeechRequest("hi", id="hi"), n=3, chunk_frames=4)
    assert np.array_equal(caught.value.partials[1].audio, alone.audio)


@pytest.mark.parametrize("how", ["close", "with", "drop"])
def test_a_search_that_is_left_early_is_cancelled(how: str) -> None:
    made = search()
    stream = made.stream(TEXT, n=3, chunk_frames=4)
    first = next(stream)
    if how == "close":
        stream.close()
        stream.close()
    elif how == "with":
        with stream:
            pass
    result = stream.result
    if how == "drop":
        del stream
        gc.collect()
    assert all_closed(made)
    assert result.status == "cancelled"
    assert np.array_equal(result.audio, first.segment)


def test_a_search_that_is_never_begun_opens_nothing() -> None:
    made = search()
    stream = made.stream(TEXT)
    stream.close()
    assert made.engine.opened == 0  # type: ignore[attr-defined]
    assert (stream.result.status, len(stream.result.audio)) == ("cancelled", 0)
    assert list(stream) == []


def test_an_engine_that_cannot_open_closes_what_was_open() -> None:
    with pytest.raises(SearchFailed, match="voice: the fake engine does not know it"):
        search().generate(SpeechRequest("hi", voice="nobody"), n=1)

    class NoScorer(FakeScorer):
        def open(self, *_: Any) -> Any:
            raise RuntimeError("no ears")

    made = ChunkSearch(FakeEngine(), NoScorer())
    with pytest.raises(SearchFailed, match="no ears"):
        made.generate(TEXT)
    assert all_closed(made)


def test_a_hundred_failures_leak_nothing() -> None:
    """Bug report C6: every lost end kept its codec slot, until the capacity was exhausted."""
    made = search()
    expected = made.generate(TEXT, n=2, chunk_frames=6).audio
    for place in range(100):
        taste = FakeTaste(fails_at=1 + place % 3) if place % 2 else FakeTaste()
        made.scorer.options = taste  # type: ignore[union-attr]
        if place % 2:
            failing(made, n=2, chunk_frames=6)
        else:
            stream = made.stream(TEXT, n=2, chunk_frames=6)
            next(stream)
            stream.close()
    gc.collect()
    assert sum(type(thing) is BranchCache for thing in gc.get_objects()) <= 1
    made.scorer.options = FakeTaste()  # type: ignore[union-attr]
    assert np.array_equal(made.generate(TEXT, n=2, chunk_frames=6).audio, expected)
    assert all_closed(made)


def test_engines_that_break_their_promise_are_named() -> None:
    class Stalled(FakeEngine):
        def open(self, *arguments: Any) -> Any:
            stream = super().open(*arguments)
            advance = stream.advance
            stream.advance = lambda frames: advance(0)  # type: ignore[method-assign]  # noqa: ARG005
            return stream

    with pytest.raises(SearchFailed, match="engine 'fake': no frames, though not all rows have finished"):
        ChunkSearch(Stalled(), FakeScorer()).generate(TEXT, n=2)


def test_results_of_a_batch_are_in_the_order_of_its_requests() -> None:
    requests = [SpeechRequest("a b c", id=str(place)) for place in range(5)]
    results: list[SearchResult] = search().generate_batch(requests, n=2)
    assert [result.request for result in results] == requests
    assert len({result.audio.tobytes() for result in results}) == 5


def test_slow_parts_are_accounted_for_where_they_are_slow() -> None:
    """No clock is tested, only that the sleep of each part lands in its own account."""
    engine = search(FakeVoice(length=4, frame_seconds=0.002)).generate(TEXT, n=2)
    scorer = search(FakeVoice(length=4), FakeTaste(step_seconds=0.008)).generate(TEXT, n=2)
    for result, slow in ((engine, "tts_codec_seconds"), (scorer, "scoring_seconds")):
        assert result.performance[slow] >= 0.008
        assert result.performance["search_wall_seconds"] >= result.performance[slow]


# --- what is refused before anything runs, and broken samples ----------------------------------------------------


def test_a_text_or_a_dictionary_is_answered_with_what_to_give() -> None:
    with pytest.raises(TypeError, match=r"requests: 'hello' is a str; give SpeechRequest\(text=\.\.\.\)"):
        search().generate("hello")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"config: {'n': 4} is a dict; give a SearchConfig"):
        search().generate(TEXT, {"n": 4})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [NAN, INF])
def test_samples_that_are_not_finite_stop_the_search_and_padding_does_not(value: float) -> None:
    track = Track(TEXT, 0, SearchConfig(n=2), limit=10, hop=4, frame_rate=FakeCodec().frame_rate)
    frames, finished = torch.zeros(2, 3, 1, dtype=torch.int64), torch.zeros(2, dtype=torch.bool)
    chunk = Chunk(frames, torch.tensor([3, 2]), finished)
    pcm = torch.zeros(2, 12)
    pcm[1, 8] = value
    assert hear_all([track], chunk, pcm, "fake").tolist() == [3, 2]
    pcm[1, 7] = value
    with pytest.raises(RuntimeError, match="engine 'fake': samples of candidate 1 are not finite"):
        hear_all([track], chunk, pcm, "fake")
