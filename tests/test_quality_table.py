"""The figures of the quality table, from judged utterances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.builtin.quality import digest, restore_lines, summarise, table


def judged(**changes: Any) -> dict[str, Any]:
    plain = {
        "configuration": "plain",
        "text": "One two.",
        "heard": "One two.",
        "errors": 0,
        "words": 2,
        "mos": 3.0,
        "seconds": 2.0,
        "status": "complete",
        "wall_seconds": 1.0,
        "first_commit_seconds": 0.5,
    }
    return plain | changes


def test_word_errors_are_pooled_over_words_and_speed_over_audio() -> None:
    row = summarise(
        "plain",
        [
            judged(),
            judged(errors=3, words=8, seconds=6.0, status="hit_frame_limit", mos=2.0, first_commit_seconds=0.9),
            judged(first_commit_seconds=0.6),
        ],
    )
    assert row.word_error_rate == pytest.approx(100 * 3 / 12)
    assert row.real_time_factor == pytest.approx(3.0 / 10.0)
    assert row.frame_limit == pytest.approx(100 / 3)
    assert row.perfect == pytest.approx(200 / 3)
    assert row.mos == pytest.approx(8 / 3)
    assert row.first_commit_seconds == 0.6
    assert "| 25.0 | 67 | 2.67 | 33.3 | 0.30 | 0.60 |" in table([row])


def test_a_take_without_audio_has_no_first_audio() -> None:
    assert summarise("plain", [judged(), judged(seconds=0.0, first_commit_seconds=None)]).first_commit_seconds == 0.5
    row = summarise("plain", [judged(first_commit_seconds=None)])
    assert row.first_commit_seconds is None
    assert table([row]).endswith("| 0.50 | - |")


def test_the_digest_follows_every_file(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("codec", "voice", "listener")]
    for path in paths:
        path.write_bytes(b"old")
    digests = {digest(paths)}
    for path in paths:
        path.write_bytes(b"new")
        digests.add(digest(paths))
    assert len(digests) == 4
    assert all(len(found) == 12 for found in digests)


def test_a_line_cut_short_by_an_interruption_is_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "utterances.jsonl"
    path.write_text('{"configuration": "plain"}\n{"configuration": "sea', encoding="utf-8")
    assert restore_lines(path) == [{"configuration": "plain"}]
    assert path.read_text(encoding="utf-8") == '{"configuration": "plain"}\n'
