"""docs/scorers.md: its file of a reward is one, its lists are whole, and its tables are those of the last study."""

import csv
import inspect
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from experiments.sensitivity.damages import DAMAGES
from experiments.sensitivity.table import Effect, answers
from scorers.composition import RewardSpec, named_rewards
from scorers.registry import KINDS
from scorers.text import TERMS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "scorers.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """What stands under a heading of the third level."""
    return PAGE.split(f"\n### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]


def test_the_reward_is_valid() -> None:
    written = PAGE.split("```toml\n")[1].split("```")[0]
    spec = RewardSpec.model_validate(tomllib.loads(written))
    assert set(spec.heads) == {"listener", "whisper"}
    assert set(spec.terms) == {"listener", "whisper.prefix_wer"}


def test_every_reward_and_kind_of_head_is_named() -> None:
    for name in {*named_rewards(), *KINDS} - {"fake"}:
        assert f"| `{name}`" in PAGE, name


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"fake", "random", "listener"}))
def test_every_option_is_named(kind: str) -> None:
    parameters = inspect.signature(import_module(KINDS[kind].module).load).parameters.values()
    options = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    assert options
    for option in options:
        assert f"`{option}`" in section(kind), option


def test_every_term_of_words_is_named() -> None:
    assert all(f"`{term.name}`" in section("whisper") for term in TERMS)


def test_the_right_answers_are_those_of_the_last_study() -> None:
    def read(row: dict[str, str]) -> Effect:
        numbers: dict[str, Any] = {name: float(row[name]) for name in ("below", "above", "drop", "unit")}
        counts: dict[str, Any] = {name: int(row[name]) for name in ("takes", "unjudged")}
        return Effect(row["damage"], row["stage"], row["term"], meant=row["meant"] == "True", **numbers, **counts)

    with (DOCS / "scorers" / "sensitivity.csv").open(encoding="utf-8") as file:
        effects = [read(row) for row in csv.DictReader(file)]
    assert answers(DAMAGES, effects) in PAGE
