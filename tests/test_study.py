"""What a study expands to, and what is refused before anything runs."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.study import StudyError, expand, read_study, study_of

RATE = Fraction(25, 2)


def units(**written: Any) -> list[Any]:
    return expand(study_of({"prompts": "hard", **written}, "typed")).units


def test_lists_are_combined_and_what_changes_nothing_is_run_once() -> None:
    settings = {"n": [1, 2, 4], "beam_width": [1, 3], "chunk_ms": [800, 1600]}
    found = expand(study_of({"prompts": "hard", "seeds": [1, 2], "settings": settings}, "typed"))
    several = ["n2-b1-c800", "n2-b1-c1600", "n4-b1-c800", "n4-b1-c1600", "n4-b3-c800", "n4-b3-c1600"]
    assert found.configurations == ["n1", *several]
    assert found.dropped == {"n = 1 once": 3, "beam_width above n": 2}
    assert len(found.units) == 7 * 2 * 40
    assert len({unit.digest for unit in found.units}) == len(found.units)


def test_plain_sampling_needs_one_scorer_only() -> None:
    found = expand(study_of({"prompts": "hard", "scorer": ["builtin", "listener"], "settings": {"n": [1, 4]}}, "typed"))
    assert found.configurations == ["n1", "builtin-n4", "listener-n4"]


@pytest.mark.parametrize(
    ("scorers", "names"),
    [
        (["a/mine.toml", "b/yours.toml"], ["mine", "yours"]),
        (["a/mine.toml", "b/mine.toml"], ["a/mine.toml", "b/mine.toml"]),
        (["whisper:base", "whisper:base.en"], ["whisper:base", "whisper:base.en"]),
        (["mine/random.toml", "builtin"], ["random.toml", "builtin"]),
    ],
)
def test_scorers_of_one_name_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scorers: list[str], names: list[str]
) -> None:
    for path in (tmp_path / scorer for scorer in scorers if scorer.endswith(".toml")):
        path.parent.mkdir(exist_ok=True)
        path.write_text("[heads.fake]")
    monkeypatch.chdir(tmp_path)
    written = {"prompts": "hard", "scorer": scorers, "control_n": [4], "settings": {"n": [1, 4]}}
    found = expand(study_of(written, "typed"))
    assert found.configurations == ["n1", *(f"{name}-n4" for name in names), "random-n4"]
    assert found.dropped == {"n = 1 once": 1}


def test_engines_of_one_stem_are_two() -> None:
    engines = ["moss:me/voice-v1.0", "moss:me/voice-v1.5"]
    found = expand(study_of({"prompts": "hard", "engine": engines, "settings": {"n": [1, 2]}}, "typed"))
    assert found.configurations == [f"voice-v1.{minor}-n{n}" for minor in (0, 5) for n in (1, 2)]


def test_a_control_arm_that_is_asked_for_twice_is_there_once() -> None:
    written = {"prompts": "hard", "scorer": ["builtin", "random"], "control_n": [4], "settings": {"n": [1, 4]}}
    found = expand(study_of(written, "typed"))
    assert found.configurations == ["n1", "builtin-n4", "random-n4"]
    assert found.dropped == {"n = 1 once": 1, "a control arm that is there already": 1}


def test_control_arms_choose_by_chance() -> None:
    settings = {"n": [1, 4], "beam_width": [1, 2], "temperature": [1.0, 2.0]}
    found = expand(study_of({"prompts": "hard", "control_n": [4], "settings": settings}, "typed"))
    assert [name for name in found.configurations if "random" in name] == ["random-n4-t1.0", "random-n4-t2.0"]
    control = next(unit for unit in found.units if unit.configuration == "random-n4-t2.0")
    assert (control.scorer, control.settings["beam_width"], control.settings["top_k"]) == ("random", 1, 50)


def test_a_unit_knows_all_that_its_audio_depends_on() -> None:
    (first, *_), (other, *_) = units(), units(seeds=[778])
    assert set(first.settings) >= {"n", "beam_width", "chunk_ms", "temperature", "stop_bias"}
    assert "[heads.listener]" in first.reward
    assert first.digest != other.digest
    assert first.digest == units(name="another name", losers=True, batch=4)[0].digest
    assert first.prompt.request().id == first.prompt.id
    for name, value in {"temperature": 0.9, "n": 4, "chunk_ms": 400, "min_seconds": 0.5}.items():
        assert units(settings={name: value})[0].digest != first.digest, name


def test_settings_reach_the_search() -> None:
    (unit, *_) = units(seeds=[9], settings={"chunk_ms": 1600, "n": 3, "guidance": 1.5})
    config = unit.config(RATE)
    assert (config.chunk_frames, config.n, config.guidance, config.seed) == (20, 3, 1.5, 9)
    (whole, *_) = units(settings={"chunk_ms": "whole"})
    assert whole.config(RATE).chunk_frames == 1_000_000
    (odd, *_) = units(settings={"chunk_ms": 850})
    with pytest.raises(StudyError, match=r"chunk_ms: 850 is not a whole number of frames of 80 ms"):
        odd.config(RATE)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("prompts", r"s\.toml: no valid TOML"),
        ('prompt = "hard"', r"s\.toml: prompts: field required"),
        ('prompts = "hard"\nspeed = 3', r"speed: unknown key; allowed are name, engine, scorer, prompts"),
        ('prompts = "hard"\nseeds = [-1]', r"seeds\.0: .*greater than or equal to 0, not -1"),
        ('prompts = "hard"\nseeds = [1, 1]', r"seeds: 1 is there twice"),
        ('prompts = "hard"\n[settings]\ntemprature = 1.0', r"settings\.temprature: unknown; allowed are n, beam_width"),
        ('prompts = "hard"\n[settings]\nseed = 1', r"settings\.seed: unknown"),
        ('prompts = "hard"\n[settings]\nn = []', r"settings\.n: an empty list"),
        ('prompts = "hard"\n[settings]\nn = [2, 2]', r"settings\.n: 2 is there twice"),
        ('prompts = "hard"\n[settings]\nn = [4, 100]', r"settings\.n: 100 is out of range; allowed is 1 to 64"),
        ('prompts = "hard"\n[settings]\nn = "8"', r"settings\.n: '8' is a str"),
        ('prompts = "hard"\n[settings]\nchunk_ms = "all"', r"chunk_ms: 'all'; allowed are milliseconds"),
        ('prompts = ["hard", "hard"]', r"prompts: 'hard' is there twice"),
        ('prompts = "nowhere.txt"', r"nowhere\.txt: No such file"),
        ('prompts = "hard"\nscorer = "no.toml"', r"scorer: no\.toml: No such file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path: Path, written: str, message: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(written)
    with pytest.raises(ValueError, match=message) as error:
        expand(read_study(path))
    assert "\n" not in str(error.value)
