"""The loop on fakes: what is committed, the entry points, and the bug reports about engines and codecs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codec.fake import FakeCodec
from engine.fake import FakeEngine, FakeVoice
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SearchConfig, SearchFailed, SearchResult, SpeechRequest
from search.config import WHOLE_UTTERANCE
from search.record import Candidates
from tests.fake_search import TEXT, all_closed, search


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
