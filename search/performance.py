"""What a search cost: the `performance` table of a result. Knows the research scripts' field names, and no model."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from search.config import WHOLE_UTTERANCE
from search.protocols import Engine, Scorer
from search.record import seconds_of
from search.track import Track

STREAMING_RULE = "one kept row commits at once; several commit the longest prefix of frames on which all agree"
INCLUDES = (
    "prompt reading, generation, codec, transfers, scoring, selection, forking, and the caller's time between commits"
)
EXCLUDES = "loading of models, playback, writing of files"


def performance(track: Track, engine: Engine, scorer: Scorer | None) -> dict[str, Any]:
    """The table for one request; seconds throughout."""
    config, rate = track.config, engine.frame_rate
    seconds = seconds_of(track.committed, rate)
    return {
        "n": config.n,
        "beam_width": config.beam_width,
        "requested_beam_width": config.beam_width,
        "chunk_ms": _milliseconds(min(config.chunk_frames, track.limit), rate),
        "whole_utterance": config.chunk_frames >= WHOLE_UTTERANCE,
        "max_seconds": seconds_of(track.limit, rate),
        "actual_seconds": seconds,
        "search_wall_seconds": track.wall_seconds,
        "search_rtf": track.wall_seconds / seconds if seconds else None,
        "first_commit_seconds": track.first_commit_seconds,
        "tts_codec_seconds": sum(step["tts_codec_device_seconds"] for step in track.steps),
        "scoring_seconds": sum(step["total_seconds"] for step in track.steps),
        "graph_capture_seconds": float(getattr(engine, "graph_capture_seconds", 0.0)),
        "streaming_rule": STREAMING_RULE,
        "includes": INCLUDES,
        "excludes": EXCLUDES,
        "engine": engine.name,
        "scorer": scorer.name if scorer else None,
        "device": str(engine.device),
        "scorer_device": str(scorer.device) if scorer else None,
        "timeline": track.steps,
        "final_search_score": track.final_score,
        "hit_frame_limit": track.hit_frame_limit,
    }


def _milliseconds(frames: int, frame_rate: Fraction) -> float:
    return float(Fraction(1000 * frames) / frame_rate)
