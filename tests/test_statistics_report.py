"""What a report says of whole runs: ordinary ones, odd ones, and those of which nothing can be said."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.statistics import Draw, Report, Results, load_results, markdown, report
from experiments.statistics.effects import Effect
from experiments.statistics.results import join
from experiments.sweep.tables import write_table
from tests.made_study import candidates, configuration, made

QUICK = Draw(resamples=200)
ARMS = candidates(1, 2, 4, 8)


def of(found: Report, configuration_: str, metric: str = "judge.wer", kind: str = "baseline") -> Effect:
    (one,) = [
        one
        for one in found.effects
        if (one.kind, one.metric) == (kind, metric) and one.configuration.startswith(configuration_)
    ]
    return one


def falling(one: Mapping[str, Any], prompt: int, seed: int) -> dict[str, float]:
    """Every doubling of N takes 0.02 off a word error rate that differs by prompt and take."""
    noise = ((prompt * 7 + seed * 3 + one["n"] * 5) % 11 - 5) / 1000
    return {
        "judge.wer": 0.2 + 0.01 * prompt - 0.02 * math.log2(one["n"]) + noise,
        "reward": math.log2(one["n"]) + noise,
    }


def whole(found: Report) -> Report:
    """The report, after all that may be asked of any."""
    json.dumps(found.to_json(), allow_nan=False)
    assert markdown(found).endswith("\n")
    assert "nan" not in markdown(found)
    return found


def test_an_effect_its_slope_and_its_edge() -> None:
    found = whole(report(made(ARMS, 20, 2, falling, judges=("ear",)), draw=QUICK))
    eight = of(found, "n8")
    assert eight.verdict == "better"
    assert eight.size is not None
    assert eight.size.mean == pytest.approx(-0.06, abs=0.003)
    assert (eight.wins, eight.ties, eight.losses, eight.prompts, eight.pairs) == (20, 0, 0, 20, 40)
    assert eight.sentence.startswith("n8 against n1: judge.wer better: −0.0599 [")
    assert eight.sentence.endswith("lower for 20, higher for 0, same for 0; p = 7.6e−06, one of 4 tests")
    slope = of(found, "all else the same", kind="doubling")
    assert slope.verdict == "better"
    assert slope.size is not None
    assert slope.size.mean == pytest.approx(-0.02, abs=0.001)
    assert slope.against == "N from 1 to 8"
    assert [edge.sentence.partition(": ")[2] for edge in found.edges] == [
        "N = 8 is the edge of what was swept; the optimum may lie beyond"
    ]
    assert found.tests == 3 + 1
    assert of(found, "n8", "reward").verdict == "described"


def test_an_optimum_inside_the_sweep_is_no_edge() -> None:
    def values(one: Mapping[str, Any], prompt: int, seed: int) -> dict[str, float]:
        return {"judge.wer": falling({"n": 1}, prompt, seed)["judge.wer"] + 0.1 * abs(one["temperature"] - 1.0)}

    arms = [configuration(f"t{value}", temperature=value) for value in (0.7, 1.0, 1.3)]
    found = report(made(arms, 20, 1, values), draw=QUICK)
    assert found.baseline == "t0.7"
    assert of(found, "t1.0").verdict == "better"
    assert found.edges == []
    assert [edge.value for edge in report(made(arms[:2], 20, 1, values), draw=QUICK).edges] == ["1.0"]


def test_seeds_are_averaged_inside_prompts_and_what_is_missing_is_left_out_of_both() -> None:
    def values(one: Mapping[str, Any], prompt: int, seed: int) -> dict[str, Any]:
        if one["n"] == 2 and prompt == 0 and seed == 1:
            return {"status": "failed", "judge.wer": None}
        if one["n"] == 1 and prompt == 1:
            return {"judge.wer": math.nan}
        return {"judge.wer": {(0, 0): 1.0, (0, 1): 50.0}.get((prompt, seed), 2.0) + one["n"]}

    found = whole(report(made(candidates(1, 2), 8, 2, values), draw=QUICK))
    two = of(found, "n2")
    assert two.size is not None
    assert (two.size.mean, two.prompts, two.pairs, two.dropped) == (1.0, 7, 13, 3)
    assert (two.wins, two.losses) == (0, 7)
    summary = next(one for one in found.summaries if (one.configuration, one.metric) == ("n1", "judge.wer"))
    assert (summary.prompts, summary.units, summary.missing) == (7, 14, 2)
    assert summary.mean is not None
    assert summary.mean.mean == pytest.approx((26.5 + 6 * 3.0) / 7)
    assert "1 of 32 units failed; pairs with them are left out" in found.warnings


def test_corpus_word_error_rate_weighs_prompts_by_their_words() -> None:
    def values(_: Mapping[str, Any], prompt: int, seed: int) -> dict[str, float]:
        return {"judge.wer": [0.0, 0.5][seed] if prompt else 0.0, "words": 30 if prompt else 10}

    found = report(made(candidates(1, 2), 2, 2, values), draw=QUICK)
    corpus, mean = found.summaries[-1].corpus, found.summaries[-1].mean
    assert found.summaries[-1].metric == "judge.wer"
    assert corpus is not None
    assert mean is not None
    assert (corpus.value, mean.mean) == (0.25 * 30 / 40, 0.125)


def test_a_knob_that_changes_nothing_is_named() -> None:
    arms = [
        configuration(f"n{n}-t{value}-g{guidance}", n=n, temperature=value, guidance=guidance)
        for n in (1, 2)
        for value in (0.7, 1.0)
        for guidance in (None, 3.0, 4.0)
    ]

    def values(one: Mapping[str, Any], prompt: int, seed: int) -> dict[str, Any]:
        return {"audio_sha256": f"{one['n']} {one['guidance'] is None} {prompt} {seed}", "judge.wer": 0.1}

    found = whole(report(made(arms, 3, 2, values), draw=QUICK))
    assert [one.sentence for one in found.idle] == [
        "guidance 3.0 and 4.0 gave identical audio in all of 24 pairs",
        "temperature changed nothing: the audio is identical in 36 pairs (0.7, 1.0)",
    ]
    assert found.warnings[:2] == [one.sentence for one in found.idle]


@pytest.mark.parametrize(
    ("prompts", "seeds", "arms"), [(1, 1, ARMS), (1, 3, ARMS), (5, 1, ARMS), (2, 2, ARMS[:1]), (30, 1, ARMS[:1])]
)
def test_what_cannot_be_judged_is_said_to_be_so(prompts: int, seeds: int, arms: list[dict[str, Any]]) -> None:
    found = whole(report(made(arms, prompts, seeds, falling), draw=QUICK))
    assert not any(one.shown for one in found.effects)
    if len(arms) == 1:
        assert found.effects == []
        assert "n1 is the only configuration: nothing to compare" in found.warnings
    else:
        many = "1 prompt" if prompts == 1 else f"{prompts} prompts"
        assert f"judge.wer against n1: cannot be judged by {many}" in found.headlines
        assert f"cannot be judged by {many} (6 are the fewest)" in of(found, "n4").sentence


def test_all_ties_no_values_and_no_units() -> None:
    level = whole(report(made(ARMS, 20, 2, lambda *_: {"judge.wer": 0.25, "reward": 1.0}), draw=QUICK))
    assert of(level, "n8").ties == 20
    assert of(level, "n8").verdict == "no effect shown"
    assert "cannot be judged: reward does not differ" in level.optimism[0].sentence
    empty = whole(report(made(ARMS, 20, 2, lambda *_: {"judge.wer": None, "judge.dnsmos": math.nan}), draw=QUICK))
    assert of(empty, "n8", "judge.dnsmos").sentence.endswith("cannot be judged: no prompt has a value in both")
    assert empty.frontiers == []
    nothing = whole(report(Results([]), draw=QUICK))
    assert (nothing.baseline, nothing.warnings) == ("", ["there are no units"])


def test_too_few_prompts_for_so_many_tests_is_a_warning() -> None:
    found = report(made(ARMS, 7, 1, falling), draw=QUICK)
    assert not any(one.shown for one in found.effects)
    assert found.warnings[0] == "7 prompts are too few for 4 tests: nothing can be shown with less than 8"
    assert "too few" not in report(made(ARMS, 8, 1, falling), draw=QUICK).warnings[0]


def test_rewards_of_two_scorers_are_not_compared() -> None:
    arms = [*candidates(1, 4), configuration("other-n4", n=4, scorer="other")]
    found = report(made(arms, 10, 1, falling), draw=QUICK)
    assert [one.configuration for one in found.effects if one.metric == "reward" and one.kind == "baseline"] == ["n4"]
    assert {one.configuration for one in found.optimism} == {"n4"}
    assert of(found, "other-n4").prompts == 10


def test_the_frontier_is_what_no_other_beats() -> None:
    wers = {1: 0.3, 2: 0.2, 4: 0.25, 8: 0.1}

    def values(one: Mapping[str, Any], _p: int, _s: int) -> dict[str, float]:
        return {"judge.wer": wers[one["n"]]}

    (counted,) = report(made(ARMS, 6, 1, values), draw=QUICK).frontiers
    assert (counted.best, counted.cost) == (["n1", "n2", "n8"], "candidate-seconds per second of audio")
    assert {point.configuration: point.beaten_by for point in counted.points}["n4"] == "n2"

    def timed(one: Mapping[str, Any], prompt: int, seed: int) -> dict[str, float]:
        return {**values(one, prompt, seed), "search_wall_seconds": {1: 1.0, 2: 3.0, 4: 2.0, 8: 1.0}[one["n"]]}

    (measured,) = report(made(ARMS, 6, 1, timed), draw=QUICK).frontiers
    assert (measured.best, measured.cost) == (["n8"], "wall seconds per second of audio")
    assert measured.points[0].cost == 0.5


def test_names_that_are_not_there_are_refused() -> None:
    run = made(ARMS, 6, 1, falling)
    with pytest.raises(ValueError, match=r"baseline: 'n3' is not in this run; it has n1, n2, n4, n8"):
        report(run, baseline="n3")
    with pytest.raises(
        ValueError, match=r"metric: 'judge\.mos' is not in this run; it has seconds, judge\.wer, reward"
    ):
        report(run, tested=["judge.mos"])
    with pytest.raises(ValueError, match=r"which way 'seconds' is good is not known"):
        report(run, tested=["seconds"])
    assert of(report(run, tested=["seconds"], directions={"seconds": "lower"}), "n8", "seconds").ties == 6
    with pytest.raises(ValueError, match=r"tables of two runs"):
        report(Results([*run.rows, *run.rows]))


def test_judges_that_differ_keep_their_names_and_those_that_agree_share_one() -> None:
    table = [{"unit": "a"}, {"unit": "b"}]
    ears = {
        "left": [{"unit": "a", "judge.wer": 0.1, "judge.duration": 2.0}, {"unit": "stray", "judge.wer": 9.0}],
        "right": [{"unit": "a", "judge.wer": 0.2, "judge.duration": 2.0, "judge.dnsmos": 3.0}],
    }
    assert join(table, [{"unit": "b", "batch": 1}], ears) == [
        {"unit": "a", "judge.left.wer": 0.1, "judge.right.wer": 0.2, "judge.duration": 2.0, "judge.dnsmos": 3.0},
        {"unit": "b", "batch": 1},
    ]


@pytest.mark.parametrize(
    ("scorers", "message"),
    [
        ({"random": 4}, ""),
        ({"fake": 4}, 'no configuration chooses at random (scorer = "random"): gains are against the baseline alone'),
        ({"random": 4, "fake": 4}, ""),
        ({"random": 4, "fake": 2}, "nothing that chooses at random differs from another in its scorer alone"),
    ],
)
def test_choosing_at_random_is_missed_where_it_is_not(scorers: Mapping[str, int], message: str) -> None:
    arms = [*candidates(1), *(configuration(f"{name}-n{n}", n=n, scorer=name) for name, n in scorers.items())]
    said = [one for one in report(made(arms, 12, 2, falling), draw=QUICK).warnings if "at random" in one]
    assert [one.startswith(message) for one in said] == ([True] if message else [])


def test_a_run_folder_is_read_with_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no table\.parquet in it"):
        load_results(tmp_path)
    run = made(ARMS, 12, 2, lambda one, prompt, seed: {"reward": falling(one, prompt, seed)["reward"]})
    write_table(tmp_path / "table", [dict(row) for row in run.rows])
    bare = load_results(tmp_path)
    assert "nothing was judged: a gain of the selecting reward alone is no evidence of better speech" in (
        whole(report(bare, draw=QUICK)).warnings
    )
    (tmp_path / "judgements").mkdir()
    judged = [{"unit": row["unit"], "judge.wer": row["n"] / 10, "judge.transcript": "x"} for row in run.rows]
    write_table(tmp_path / "judgements" / "ear", judged)
    write_table(
        tmp_path / "timing", [{"unit": row["unit"], "search_wall_seconds": 1.0, "batch": 4} for row in run.rows]
    )
    (tmp_path / "run.json").write_text(json.dumps({"run": "abc", "study": {"name": "beams"}}))
    results = load_results(tmp_path)
    assert (results.run, results.study, results.judges) == ("abc", "beams", ("ear",))
    found = whole(report(results, draw=QUICK))
    assert of(found, "n8").verdict == "worse"
    assert "timed in batches of up to 4: seconds are not those of a prompt spoken alone" in found.warnings


def test_what_selected_is_named_where_it_judges() -> None:
    run = made(candidates(1, 2, scorer="whisper:base.en"), 6, 1, falling, judges=("ear", "whisper-base.en"))
    assert "judge whisper-base.en also selected; its figures are no independent evidence" in report(run).warnings


def test_the_same_run_gives_the_same_report() -> None:
    run = made(ARMS, 12, 2, falling)
    assert report(run, draw=QUICK) == report(run, draw=QUICK)
