"""The calling style of the programs that this grew from: a spec with prompt, unconditional and text, and on_commit."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from codec.moss import load_moss_codec
from engine.moss.engine import MossEngine
from engine.moss.packing import RowLayout, Script, pack
from scorers.fake import FakeScorer
from search import ChunkSearch, SpeechRequest
from tests.tiny import tiny_moss_network
from tests.tiny_codec import tiny_codec
from tests.tiny_voice import BOOKS, tiny_voice_config

CONFIG = tiny_voice_config()
HOP = 12

# What scripts read from an entry, and from the performance of a result.
ENTRY = {
    "step", "frame", "retained_rows", "committed_audio_seconds", "committed_until_seconds", "generation_wall_seconds",
    "tts_codec_device_seconds", "scores", "total_seconds",
}  # fmt: skip
PERFORMANCE = {
    "n", "beam_width", "requested_beam_width", "chunk_ms", "max_seconds", "actual_seconds", "search_wall_seconds",
    "search_rtf", "first_commit_seconds", "tts_codec_seconds", "scoring_seconds", "graph_capture_seconds",
    "streaming_rule", "includes", "excludes", "device", "scorer_device", "timeline", "final_search_score",
    "hit_frame_limit",
}  # fmt: skip


def packed(text: str, instruction: str | None, reference: Tensor) -> Tensor:
    return pack(
        Script(text, instruction=instruction),
        lambda piece: list(piece.encode()),
        RowLayout.of(CONFIG),
        references=[reference],
    )


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> MossEngine:
    codec = load_moss_codec(tiny_codec(tmp_path_factory.mktemp("codec"), "second"), books=BOOKS)
    return MossEngine(tiny_moss_network(CONFIG, stop=0.01), codec, name="tiny")


@pytest.fixture(scope="module")
def spec(engine: MossEngine) -> dict[str, Any]:
    reference = engine.codec.encode(np.sin(np.arange(90) / 5.0), engine.sample_rate)  # type: ignore[attr-defined]
    text = "Hello there (sigh)."
    return {"prompt": packed(text, "softly", reference), "unconditional": packed(text, None, reference), "text": text}


@pytest.mark.parametrize(
    ("n", "beam_width", "chunk_frames", "guidance"), [(16, 1, 10, 1.5), (16, 2, 20, 1.0), (20, 1, 10, 3.0)]
)
def test_a_spec_is_searched_and_its_commits_are_the_audio(
    engine: MossEngine, spec: dict[str, Any], n: int, beam_width: int, chunk_frames: int, guidance: float
) -> None:
    commits: list[tuple[np.ndarray, dict[str, Any]]] = []
    result = ChunkSearch(engine, FakeScorer()).generate(
        SpeechRequest(**spec),
        n=n,
        beam_width=beam_width,
        chunk_frames=chunk_frames,
        guidance=guidance,
        max_seconds=3.2,
        seed=777,
        on_commit=lambda segment, entry: commits.append((segment, entry)),
    )
    assert np.array_equal(np.concatenate([segment for segment, _ in commits]), result.audio)
    assert len(result.audio) == len(result.frames) * HOP > 0
    for segment, entry in commits:
        assert entry.keys() >= ENTRY
        assert len(entry["scores"]) == n
        assert len(entry["retained_rows"]) <= beam_width
        assert len(segment) == round(entry["committed_audio_seconds"] * engine.sample_rate)
    assert result.performance.keys() >= PERFORMANCE
    assert result.performance["chunk_ms"] == chunk_frames * 80
    assert commits[-1][1]["committed_until_seconds"] == pytest.approx(len(result.frames) * 0.08)
    assert [entry["step"] for _, entry in commits] == sorted({entry["step"] for _, entry in commits})


def test_committed_audio_is_the_offline_decode_of_the_committed_frames(
    engine: MossEngine, spec: dict[str, Any]
) -> None:
    result = ChunkSearch(engine, FakeScorer()).generate(SpeechRequest(**spec), n=5, beam_width=2, max_seconds=3.2)
    offline = engine.codec.decode(torch.as_tensor(result.frames)).numpy()
    np.testing.assert_allclose(result.audio, offline, rtol=1e-4, atol=1e-5)


def test_the_two_sides_of_a_spec_steer(engine: MossEngine, spec: dict[str, Any]) -> None:
    """Guidance changes what is said; without the other side, or with itself as the other side, it cannot."""
    search = ChunkSearch(engine, FakeScorer())

    def frames(guidance: float, **fields: Any) -> Tensor:
        request = SpeechRequest(**(spec | fields))
        return torch.as_tensor(search.generate(request, n=2, guidance=guidance, max_seconds=0.8).frames)

    plain = frames(1.0)
    assert not torch.equal(frames(3.0), plain)
    assert torch.equal(frames(3.0, unconditional=spec["prompt"]), plain)
    assert torch.equal(frames(1.0, unconditional=None), plain)
