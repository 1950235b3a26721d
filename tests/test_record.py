"""What a search leaves behind: field names that scripts read, and files."""

import json
import math
import wave
from pathlib import Path

import numpy as np
import pytest

from engine.fake import FakeEngine, FakeVoice
from scorers.fake import FakeScorer, FakeTaste
from search import ChunkSearch, SearchResult, SpeechRequest
from search.record import json_ready, pcm16, write_wav

STEP_FIELDS = {
    "step",
    "frame",
    "retained_rows",
    "committed_audio_seconds",
    "committed_until_seconds",
    "generation_wall_seconds",
    "tts_codec_device_seconds",
    "scores",
    "total_seconds",
}
PERFORMANCE_FIELDS = {
    "n",
    "beam_width",
    "requested_beam_width",
    "chunk_ms",
    "max_seconds",
    "actual_seconds",
    "search_wall_seconds",
    "search_rtf",
    "first_commit_seconds",
    "tts_codec_seconds",
    "scoring_seconds",
    "graph_capture_seconds",
    "streaming_rule",
    "includes",
    "excludes",
    "device",
    "scorer_device",
    "timeline",
    "final_search_score",
    "hit_frame_limit",
}


@pytest.fixture
def result() -> SearchResult:
    taste = FakeTaste(script=((0.1, math.nan, 0.3), (0.2, 0.1, 0.0)), prefix_wer=(0.5, 0.0, 0.25))
    request = SpeechRequest("Grüße: one two three four five", id="r", instruction=None)
    return ChunkSearch(FakeEngine(), FakeScorer(taste)).generate(request, n=3, chunk_frames=6, beam_width=2)


def test_field_names_that_research_scripts_read(result: SearchResult) -> None:
    assert set(result.performance) >= PERFORMANCE_FIELDS
    for place, step in enumerate(result.steps):
        assert set(step) >= STEP_FIELDS
        assert step["step"] == place + 1
        assert len(step["scores"]) == 3
        for score in step["scores"]:
            assert set(score) >= {"reward", "prefix_wer", "heard_seconds", "transcript"}


def test_performance_adds_up(result: SearchResult) -> None:
    table = result.performance
    assert (table["n"], table["beam_width"], table["requested_beam_width"], table["chunk_ms"]) == (3, 2, 2, 480.0)
    assert table["actual_seconds"] == result.seconds
    assert table["tts_codec_seconds"] == sum(step["tts_codec_device_seconds"] for step in result.steps)
    assert table["scoring_seconds"] == sum(step["total_seconds"] for step in result.steps)
    assert table["search_rtf"] == table["search_wall_seconds"] / result.seconds
    assert 0 < table["first_commit_seconds"] <= table["search_wall_seconds"]
    assert table["timeline"] == result.steps
    assert table["final_search_score"] == result.steps[-1]["scores"][result.steps[-1]["retained_rows"][0]]
    assert (table["device"], table["scorer_device"]) == ("cpu", "cpu")


def test_without_a_scorer_the_score_is_empty_but_there() -> None:
    result = ChunkSearch(FakeEngine(FakeVoice(length=3))).generate(SpeechRequest("hi"), n=1)
    score = result.steps[0]["scores"][0]
    assert math.isnan(score["reward"])
    assert math.isnan(score["prefix_wer"])
    assert score["judged"] is False


def test_saved_files_hold_what_was_found(result: SearchResult, tmp_path: Path) -> None:
    path = result.save(tmp_path / "deep" / "folder", "take")
    assert path == tmp_path / "deep" / "folder" / "take.wav"
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (100, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert np.abs(samples / 32767 - result.audio).max() <= 0.5 / 32767 + 1e-7
    text = path.with_suffix(".json").read_text("utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert "Grüße" in text
    saved = json.loads(text)
    assert saved["status"] == result.status
    assert saved["request"]["text"] == result.request.text
    assert saved["request"]["id"] == "r"
    assert saved["config"]["n"] == 3
    assert saved["frames"] == result.frames.tolist()
    assert saved["steps"][0]["scores"][1]["reward"] is None
    assert saved["steps"][0]["scores"][1]["judged"] is False
    assert saved["steps"][-1]["retained_rows"] == result.steps[-1]["retained_rows"]
    assert saved["performance"]["final_search_score"] == json_ready(result.performance["final_search_score"])


def test_a_summary_is_json(result: SearchResult) -> None:
    json.dumps(result.summary(), allow_nan=False)


def test_latents_are_saved_too(tmp_path: Path) -> None:
    search = ChunkSearch(FakeEngine(FakeVoice(width=2, length=3)), FakeScorer())
    path = search.generate(SpeechRequest("hi"), n=2).save(tmp_path)
    frames = json.loads(path.with_suffix(".json").read_text())["frames"]
    assert np.asarray(frames).shape == (3, 2)


def test_an_utterance_without_frames_is_saved(tmp_path: Path) -> None:
    result = ChunkSearch(FakeEngine(FakeVoice(length=0)), FakeScorer()).generate(SpeechRequest("hi"), n=2)
    with wave.open(str(result.save(tmp_path))) as file:
        assert file.getnframes() == 0


def test_pcm_is_clipped_and_rounded(tmp_path: Path) -> None:
    loud = np.array([0.0, 1.0, -1.0, 2.0, -7.0, 0.5], np.float32)
    assert np.frombuffer(pcm16(loud), "<i2").tolist() == [0, 32767, -32767, 32767, -32767, 16384]
    write_wav(tmp_path / "x.wav", loud, 24_000)
    with wave.open(str(tmp_path / "x.wav")) as file:
        assert file.getnframes() == 6


def test_json_ready_at_any_depth() -> None:
    value = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "c": "NaN", "d": None, "e": True}
    assert json_ready(value) == {"a": [1.5, None, [None, {"b": None}]], "c": "NaN", "d": None, "e": True}
