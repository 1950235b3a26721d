"""Benchmarks: the shape of what they print, with heads that cost nothing. What they measure is never asserted."""

import json
import math
import mmap
from collections.abc import Iterator

import pytest
import torch

from experiments.bench import scorers, timing
from experiments.bench.heads import ROWS, Speech, every_kind, speak
from experiments.bench.scorers import Plan, bench_scorers
from experiments.bench.timing import Table, timed, watched
from experiments.commands import bench as command
from experiments.commands.outcome import DONE, InputError
from scorers.registry import KINDS

TIMES = {"median_ms", "least_ms", "most_ms", "runs"}


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """One core, and speech that is no speech."""
    monkeypatch.setattr(scorers, "cores", lambda: 1)
    monkeypatch.setattr(scorers, "speak", lambda: Speech(torch.rand(ROWS, 24_000) * 0.1, 24_000, 1920))


@pytest.mark.usefixtures("brief")
def test_every_table_has_its_rows_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    plan = Plan(runs=1, calls=3)
    tables = {table.name: table for table in bench_scorers(["fake", "ears"], "cpu", plan, told.append)}
    assert list(tables) == ["steps", "places", "memory", "left_out"]
    assert [(row["head"], row["audio_seconds"]) for row in tables["steps"].rows] == [("fake", s) for s in (1, 3, 10)]
    assert [row["how"] for row in tables["places"].rows] == ["in a row, torch threads: 1", "threads: 1", "processes: 1"]
    assert tables["places"].rows[0]["ratio"] == 1.0
    for name, columns in (("steps", {"head", "audio_seconds"}), ("places", {"how", "ratio"})):
        assert all(row.keys() == TIMES | columns for row in tables[name].rows)
        assert all(0 < row["least_ms"] <= row["median_ms"] <= row["most_ms"] for row in tables[name].rows)  # type: ignore[operator]
    assert tables["memory"].rows[0].keys() == {"head", "first_mib", "last_mib", "slope_kib", "calls"}
    assert tables["left_out"].rows == [
        {"head": "ears", "why": f"kind: 'ears' is not known; allowed are {', '.join(sorted(KINDS))}"}
    ]
    assert told[0] == "speaking"
    assert capsys.readouterr().out == ""


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rows: list[timing.Row] = [{"how": "fast", "median_ms": 1234.567, "runs": 3}]
    tables = [Table("places", "Where", rows), Table("left_out", "Who", [])]
    monkeypatch.setattr(command, "bench_scorers", lambda *_: tables)
    return


@pytest.mark.usefixtures("_measured")
def test_the_command_prints_tables_or_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = command.run_scorers([], device=None, quick=True, as_json=False)
    printed = capsys.readouterr().out
    assert outcome.code == DONE
    assert "1,234.6" in printed
    assert "Where" in printed
    assert "Who" not in printed, "a table without rows is not shown"
    data = json.loads(json.dumps(command.run_scorers([], device=None, quick=True, as_json=True).data))
    assert capsys.readouterr().out == ""
    assert data["places"] == [{"how": "fast", "median_ms": 1234.567, "runs": 3}]
    assert data["left_out"] == []
    assert data["machine"]["device"] == "cpu"


def test_what_cannot_be_measured_is_told_of() -> None:
    with pytest.raises(InputError, match="kind: 'ears' is not known"):
        command.run_scorers(["ears"], device=None, quick=True, as_json=True)


def test_all_kinds_are_measured_but_the_one_that_hears_nothing() -> None:
    assert set(every_kind()) == set(KINDS) - {"fake", "random"}


def test_speech_is_eight_candidates_and_goes_on_for_as_long_as_it_is_needed() -> None:
    speech = speak()
    assert speech.pcm.shape == (ROWS, 50 * speech.hop)
    assert len({row.numpy().tobytes() for row in speech.pcm}) == ROWS
    long = speech.first(10.0)
    assert long.shape == (ROWS, 125 * speech.hop)
    assert torch.equal(long[:, 50 * speech.hop : 60 * speech.hop], speech.pcm[:, : 10 * speech.hop])
    assert torch.equal(speech.first(1.0), speech.pcm[:, : 12 * speech.hop])


def test_what_warms_up_or_prepares_is_not_counted() -> None:
    order: list[str] = []
    assert timed(lambda: order.append("work"), 2, lambda: order.append("before")).runs == 2
    assert order == ["before", "work"] * 3


def test_growth_is_the_slope_after_the_first_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0, 0, *range(1024, 1024 + 18 * 2, 2)])
    monkeypatch.setattr(timing, "resident_kib", lambda: next(sizes))
    found = watched(lambda: None, 20)
    assert (found.first_mib, found.calls) == (1.0, 20)
    assert math.isclose(found.slope_kib, 2.0)


def test_resident_memory_is_real() -> None:
    before = timing.resident_kib()
    with mmap.mmap(-1, 32 * 2**20) as held:  # fresh pages: an allocator may have some of its own to give
        held.write(b"x" * len(held))
        assert timing.resident_kib() - before > 16 * 1024
