"""Rewards written down: reads and checks the TOML files that say which heads listen and how their terms add up.

    description = "what it is for"

    [heads.whisper]              # a name of your own; `kind` where it is not a kind of head itself
    model = "base"               # options of the head
    device = "cuda:1"            # else the device that the scorer is loaded on
    place = "here"               # or "thread", "process": beside the other heads
    deadline_seconds = 5.0       # of a thread or process
    on_failure = "error"         # or "absent": the search goes on without the head
    two_stage = { by = "listener", top = 3 }     # hear only the best three by another head

    [terms.prefix_wer]           # "head.term" where two heads have a term of that name and the second one is meant
    weight = 1.0
    normalise = "none"           # "minmax", "zscore", or "reference" with mean and sd

    [gates.wer]                  # factor 1 at `full`, 0 at `zero`, linear between
    full = 0.0
    zero = 1.0

Unknown keys are errors. Knows neither heads nor arithmetic: options of a head are checked where it is loaded.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from scorers.reward import Normalisation

REWARDS = Path(__file__).parent / "rewards"

Positive = Annotated[FiniteFloat, Field(gt=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TwoStage(_Strict):
    """Hear only the `top` rows of each request by the reward of the head called `by`."""

    by: str
    top: Annotated[int, Field(ge=1)]


class HeadSpec(BaseModel):
    """A head: what kind, where it runs, and its own options in `options`."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str | None = None
    device: str | None = None
    place: Literal["here", "thread", "process"] = "here"
    deadline_seconds: Positive | None = None
    on_failure: Literal["error", "absent"] = "error"
    two_stage: TwoStage | None = None

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if self.deadline_seconds is not None and self.place == "here":
            raise ValueError("deadline_seconds needs place = 'thread' or 'process': what runs here cannot be left")
        return self


class TermSpec(_Strict):
    """How a term enters the sum."""

    weight: Positive
    normalise: Normalisation = "none"
    mean: FiniteFloat | None = None
    sd: Positive | None = None

    @model_validator(mode="after")
    def _reference(self) -> Self:
        stored = (self.mean is not None, self.sd is not None)
        if self.normalise == "reference" and not all(stored):
            raise ValueError("normalise = 'reference' needs mean and sd")
        if self.normalise != "reference" and any(stored):
            raise ValueError(f"mean and sd are for normalise = 'reference', not {self.normalise!r}")
        return self


class GateSpec(_Strict):
    """Where a gate is open and where it is closed."""

    full: FiniteFloat
    zero: FiniteFloat


class RewardSpec(_Strict):
    """A whole file."""

    description: str = ""
    heads: Annotated[dict[str, HeadSpec], Field(min_length=1)]
    terms: Annotated[dict[str, TermSpec], Field(min_length=1)]
    gates: dict[str, GateSpec] = {}

    @model_validator(mode="after")
    def _stages(self) -> Self:
        for name, head in self.heads.items():
            if not name or "." in name:
                raise ValueError(f"heads.{name}: a head has a name, without a dot")
            if head.two_stage is None:
                continue
            first = self.heads.get(head.two_stage.by)
            if first is None or first.two_stage is not None or head.two_stage.by == name:
                others = [other for other, spec in self.heads.items() if spec.two_stage is None and other != name]
                raise ValueError(
                    f"heads.{name}.two_stage.by is {head.two_stage.by!r}; allowed are heads that hear every row: "
                    f"{', '.join(others) or 'there is none'}"
                )
        return self


def named_rewards() -> list[str]:
    """Names of the files that come with the package."""
    return sorted(path.stem for path in REWARDS.glob("*.toml"))


def read_reward(path: Path) -> RewardSpec:
    """The reward of a file.

    Raises:
        ValueError: the file is not there, is no TOML, or has unknown, missing or wrong keys; one line, naming them.
    """
    try:
        return RewardSpec.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no valid TOML: {error}") from None
    except ValidationError as error:
        raise ValueError(f"{path}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        return f"{where}: unknown key; allowed are {', '.join(_allowed(found['loc']))}"
    if found["type"] in ("model_type", "dict_type"):
        return f"{where}: give a table, not {found['input']!r}"
    given = "" if found["type"] in ("missing", "value_error") else f", not {found['input']!r}"
    message = found["msg"].removeprefix("Value error, ")
    return f"{where}: {message[:1].lower()}{message[1:]}{given}" if where else message


def _allowed(location: tuple[int | str, ...]) -> list[str]:
    """Keys that the table of an unknown key may have."""
    if len(location) == 1:
        return list(RewardSpec.model_fields)
    if location[0] == "heads":
        return list(TwoStage.model_fields)
    return list((TermSpec if location[0] == "terms" else GateSpec).model_fields)
