"""The study with heads that are made up: what is counted, what counts as heard, and what is kept for later."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.sensitivity.damages import Damage, Take
from experiments.sensitivity.plot import heat_map
from experiments.sensitivity.study import UNDAMAGED, copies_of, listen
from experiments.sensitivity.table import Effect, answers, effects, grid, liked
from scorers.heads import Clip, Judgement, Term
from scorers.rereader import Rereader
from search import SpeechRequest


def _nothing(take: Take) -> np.ndarray:
    return take.audio


NOISE = Damage("noise", "noise", _nothing, ("ear.good",))
CUT = Damage("cut", "cut", _nothing, (), early=("ear.errors",))
SIGNS = {"ear.good": 1.0, "ear.errors": -1.0}


def take_found(before: float, after: float) -> dict[str, dict[str, float]]:
    """One take: `good` falls from `before` to `after`, `errors` rise by as much."""
    return {
        UNDAMAGED: {"ear.good": before, "ear.errors": -before},
        "noise": {"ear.good": after, "ear.errors": -after},
        "cut": {"ear.good": before, "ear.errors": -before},
    }


def effect(found: Sequence[Effect], damage: str, term: str) -> Effect:
    return next(one for one in found if (one.damage, one.term) == (damage, term))


def test_drops_are_signed_and_in_deviations_of_undamaged_takes() -> None:
    found = effects([NOISE, CUT], [take_found(1.0, 0.0), take_found(3.0, 0.0)], SIGNS)
    for term in SIGNS:
        one = effect(found, "noise", term)
        assert one.drop == pytest.approx(2.0)
        assert one.unit == pytest.approx(math.sqrt(2.0))
        assert one.drop_in_units == pytest.approx(math.sqrt(2.0))
        assert (one.below, one.above, one.takes) == (1.0, 0.0, 2)
    assert effect(found, "noise", "ear.good").meant
    assert not effect(found, "noise", "ear.errors").meant


def test_ties_are_neither_below_nor_above() -> None:
    one = effect(effects([CUT], [take_found(1.0, 0.0), take_found(3.0, 0.0)], SIGNS), "cut", "ear.good")
    assert (one.below, one.above, one.drop) == (0.0, 0.0, 0.0)


def test_a_copy_that_cannot_be_judged_is_below_and_a_take_that_cannot_is_left_out() -> None:
    takes = [take_found(1.0, math.nan), take_found(2.0, 3.0), take_found(math.nan, 1.0), take_found(3.0, 3.0)]
    one = effect(effects([NOISE], takes, SIGNS), "noise", "ear.good")
    assert (one.takes, one.unjudged) == (3, 1)
    assert one.below == pytest.approx(1 / 3)
    assert one.above == pytest.approx(1 / 3)
    assert one.drop == pytest.approx(-0.5)


def test_takes_that_do_not_differ_have_no_unit() -> None:
    one = effect(effects([NOISE], [take_found(1.0, 0.0)] * 3, SIGNS), "noise", "ear.good")
    assert math.isnan(one.drop_in_units)
    assert one.verdict == "yes"


def test_beginnings_have_right_answers_of_their_own() -> None:
    found = effects([NOISE, CUT], [take_found(1.0, 0.0)] * 2, SIGNS, "beginning")
    assert {one.damage for one in found} == {"cut"}
    assert [one.term for one in found if one.meant] == ["ear.errors"]


@pytest.mark.parametrize(("below", "verdict"), [(0.9, "yes"), (0.89, "in part"), (0.5, "in part"), (0.49, "no")])
def test_verdicts(below: float, verdict: str) -> None:
    assert Effect("noise", "whole", "ear.good", 100, 0, below, 0.0, 1.0, 1.0, True).verdict == verdict


def test_tables_show_shares_drops_and_what_is_liked() -> None:
    found = effects([NOISE, CUT], [take_found(1.0, 0.0), take_found(3.0, 1.0)], SIGNS)
    assert "| noise | whole | ear.good | 100% of 2 | 1.1 | yes |" in answers([NOISE, CUT], found)
    assert "| noise | 1.1 (100%) | 1.1 (100%) |" in grid([NOISE, CUT], found, list(SIGNS))
    assert liked([NOISE, CUT], found, list(SIGNS)) == ""
    praised = effects([NOISE], [take_found(1.0, 2.0), take_found(3.0, 4.0)], SIGNS)
    assert "| noise | whole | ear.good | 100% of 2 | 0.7 |" in liked([NOISE], praised, ["ear.good"])


def test_the_heat_map_is_the_same_bytes_and_holds_its_words() -> None:
    found = effects([NOISE, CUT], [take_found(1.0, math.nan), take_found(3.0, 1.0)], SIGNS)
    svg = heat_map([NOISE, CUT], found, list(SIGNS))
    assert svg == heat_map([NOISE, CUT], found, list(SIGNS))
    assert ">noise</text>" in svg


class Ear:
    """Judges a clip by how long it is, and counts how often it was asked."""

    name = "ear"
    device = torch.device("cpu")
    sample_rate = 24_000
    terms = (Term("seconds"), Term("prefix_wer", "lower"))

    def __init__(self) -> None:
        self.batches: list[bool] = []
        self.instructions: list[str] = []

    def prepare(self, request: SpeechRequest) -> None:
        assert request.reference is not None
        self.instructions += [request.instruction] if request.instruction else []

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        self.batches.append(clips[0].finished)
        return [Judgement({"seconds": len(clip.pcm) / self.sample_rate, "prefix_wer": 0.0}) for clip in clips]


def made_up(name: str) -> Take:
    audio = np.random.default_rng(len(name)).standard_normal(48_000, np.float32)
    return Take(name, "one two three", audio, [(0, 9600), (9600, 19_200), (19_200, 40_000)], 1, audio, audio, audio)


def test_what_was_heard_is_kept_and_not_heard_again(tmp_path: Path) -> None:
    kept, takes = tmp_path / "heard.jsonl", [made_up("a"), made_up("bb")]
    ear = Ear()
    first = list(listen("ear", Rereader(ear), takes, kept))
    assert ear.batches == [True, False, True, False]
    assert set(first[0].whole) == set(copies_of(takes[0]))
    assert first[0].whole[UNDAMAGED] == {"ear.ear": 2.0, "ear.seconds": 2.0, "ear.prefix_wer": 0.0}
    assert first[0].early[UNDAMAGED]["ear.seconds"] == pytest.approx(1.6)
    kept.write_text(kept.read_text()[:-20])
    again = Ear()
    assert list(listen("ear", Rereader(again), takes, kept)) == first
    assert again.batches == [True, False]
    instructed = Ear()
    list(listen("ear", Rereader(instructed), takes[:1], kept, "calm"))
    assert instructed.batches == [True, False]
    assert set(instructed.instructions) == {"calm"}


def test_the_command_writes_table_page_and_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.sensitivity import __main__ as command

    monkeypatch.setattr(command, "takes_of", lambda *_: [made_up("a"), made_up("bb")])
    monkeypatch.setattr(command, "load_scorer", lambda _: Rereader(Ear()))
    work, out = str(tmp_path / "work"), tmp_path / "out"
    monkeypatch.setattr("sys.argv", ["sensitivity", "--heads", "ear", "--work", work, "-o", str(out)])
    command.main()
    rows = list(csv.DictReader((out / "sensitivity.csv").open(encoding="utf-8")))
    silence = next(row for row in rows if row["damage"] == "cut_end" and row["term"] == "ear.seconds")
    assert float(silence["drop"]) == pytest.approx((48_000 - 19_200) / 24_000)
    assert "ear.seconds" in (out / "sensitivity.md").read_text(encoding="utf-8")
    assert (out / "sensitivity.svg").read_text(encoding="utf-8").startswith("<?xml")
