"""Where every candidate of a take was lost, as its page tells it; and the figures' colours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="sites need matplotlib: pip install 'chunksearch[study]'")

import experiments.report
from experiments.site.plots import Point, against_n, cost_quality, side_by_side
from experiments.site.tree import selections_of


def step(number: int, rewards: list[float | None], kept: list[int], parents: list[int], until: float) -> dict[str, Any]:
    """A record as `steps.jsonl` has it."""
    return {
        "step": number,
        "scores": [{"reward": reward, "prefix_wer": None, "judged": True, "match": 1.0} for reward in rewards],
        "retained_rows": kept,
        "parents": parents,
        "lengths": [10] * len(rewards),
        "finished": [False] * len(rewards),
        "committed_until_seconds": until,
    }


def fates(records: list[dict[str, Any]]) -> list[dict[int, str]]:
    return [{one.row: one.fate for one in found.candidates} for found in selections_of(records)]


def test_every_candidate_is_lost_somewhere_or_in_the_take() -> None:
    # Two beams of four rows: row 1 wins the first step, but the take comes from row 2.
    records = [
        step(1, [0.1, 0.9, 0.8, None], [1, 2], [1, 1, 2, 2], 0.0),
        step(2, [0.2, 0.7, 0.6, 0.5], [1, 2], [1, 1, 2, 2], 0.0),
        step(3, [0.1, 0.1, 0.9, 0.8], [2, 3], [2, 2, 3, 3], 1.6),
        step(4, [0.3, 0.6, 0.6, 0.1], [1, 2], [], 2.4),
    ]
    assert fates(records) == [
        {0: "lost by 0.7", 1: "kept, lost in step 3", 2: "in the take", 3: "lost: no reward"},
        {0: "lost by 0.4", 1: "kept, lost in step 3", 2: "in the take", 3: "lost by 0.1"},
        {0: "lost by 0.7", 1: "lost by 0.7", 2: "in the take", 3: "kept to the end, not best"},
        {0: "lost by 0.3", 1: "in the take", 2: "kept to the end, not best", 3: "lost by 0.5"},
    ]
    first, second, *_ = selections_of(records)
    assert [one.row for one in first.candidates] == [1, 2, 0, 3]
    assert [one.place for one in first.candidates] == [1, 2, 3, 4]
    assert {one.row: one.parent for one in second.candidates} == {0: 1, 1: 1, 2: 2, 3: 2}
    assert [one.begins for one in selections_of(records)] == [0.0, 0.0, 0.0, 1.6]


def test_a_take_without_selections_has_none() -> None:
    assert selections_of([]) == []


@pytest.mark.parametrize("tie", [0.5, 0.4])
def test_what_was_as_good_as_the_kept_is_not_said_to_be_worse(tie: float) -> None:
    (found,) = fates([step(1, [0.5, tie], [0], [], 0.8)])
    assert found == {0: "in the take", 1: "lost, as good as what was kept" if tie == 0.5 else "lost by 0.1"}


def drawn() -> list[Any]:
    points = {1: Point(0.0), 2: Point(0.1, 0.05, 0.2), 4: Point(0.2, 0.1, 0.3)}
    return [
        against_n("n", "reward", {"beam 1": points, "beam 2": points}),
        cost_quality("c", ("cost", "reward"), {"a": (1.0, points[2]), "b": (20.0, points[4])}, ["a"]),
        side_by_side("s", "gain", {"a": {"reward": points[2], "judge": points[4]}}),
    ]


def test_figures_have_the_colours_of_the_page_and_no_others() -> None:
    css = (Path(experiments.report.__file__).parent / "page.css").read_text()
    for plot in drawn():
        assert not re.findall(r"#[0-9a-f]{6}", plot.fragment)
        assert set(re.findall(r"var\((--[a-z]+(?:-\d)?)\)", plot.fragment)) <= {
            *("--ink", "--quiet", "--line"),
            *(f"--series-{place}" for place in range(1, 7)),
        }
        for name in ("ink", "quiet", "line", "paper"):
            light, dark = re.findall(rf"--{name}: (#[0-9a-f]{{6}})", css)
            assert f"{'background' if name == 'paper' else '--' + name}: {light}" in plot.file
            assert f"{'background' if name == 'paper' else '--' + name}: {dark}" in plot.file


def test_figures_can_share_a_page_and_are_the_same_every_time() -> None:
    first, second = drawn(), drawn()
    assert first == second
    names = [name for plot in first for name in re.findall(r'id="([^"]+)"', plot.fragment)]
    assert len(names) == len(set(names))
    for plot in first:
        for used in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', plot.fragment):
            assert "".join(used) in names
