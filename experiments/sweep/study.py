"""What a sweep is to run: a strict file of settings, lists where they vary, expanded into units before anything starts.

    name = "beams"
    engine = "builtin"                  # of what may be a list, every value is combined with every other
    scorer = ["builtin", "random"]
    prompts = "everyday"                # sets that come along, or files
    seeds = [777, 778]
    control_n = [8]                     # control arms: as many candidates, chosen by chance
    losers = false                      # keep the audio of all candidates
    batch = 1                           # prompts that are spoken in one batch

    [settings]                          # fields of SearchConfig, and chunk_ms
    n = [1, 2, 4, 8]
    beam_width = [1, 2]
    chunk_ms = [800, "whole"]

A unit is one configuration, one prompt, one seed. Knows nothing of engines, files and results.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from experiments.prompts import Prompt, read_prompts
from scorers.composition import REWARDS, named_rewards
from search import SearchConfig
from search.config import WHOLE_UTTERANCE

WHOLE = "whole"
"""A `chunk_ms` for comparing whole utterances: best of N."""
CONTROL = "random"
"""The scorer of control arms."""
_SHORT = {"n": "n", "beam_width": "b", "chunk_ms": "c", "temperature": "t", "guidance": "g"}
_DIALS = [one.name for one in fields(SearchConfig) if one.name not in ("seed", "chunk_frames")]
SETTINGS = ("n", "beam_width", "chunk_ms", *(name for name in _DIALS if name not in ("n", "beam_width")))


class StudyError(ValueError):
    """A study cannot be run as it is written; the message names the key, its value and what is allowed."""


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


Names = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_listed), Field(min_length=1)]


class StudySpec(BaseModel):
    """A study as it is written; single values are lists of one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = "study"
    engine: Names = ["builtin"]
    scorer: Names = ["builtin"]
    prompts: Names
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [777]
    control_n: list[Annotated[int, Field(ge=2)]] = []
    losers: bool = False
    batch: Annotated[int, Field(ge=1, le=64)] = 1
    settings: dict[str, Any] = {}


@dataclass(frozen=True)
class Unit:
    """One search to run: everything that its audio depends on, but for code and weights.

    Attributes:
        configuration: short name of all but prompt and seed.
        settings: every field of `SearchConfig` but the seed, with `chunk_ms` in the place of `chunk_frames`.
        reward: what the scorer's TOML file holds; empty where the scorer is no file.
    """

    configuration: str
    engine: str
    scorer: str
    reward: str
    settings: Mapping[str, Any]
    prompt: Prompt
    seed: int

    @property
    def digest(self) -> str:
        """Sixteen hex digits that differ where anything but the configuration's name differs."""
        content = {name: value for name, value in self.plain().items() if name != "configuration"}
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]

    def plain(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "settings": dict(self.settings)}

    def config(self, frame_rate: Fraction) -> SearchConfig:
        """The search's settings, for an engine of that frame rate."""
        dials = {name: value for name, value in self.settings.items() if name != "chunk_ms"}
        return SearchConfig(**dials, chunk_frames=frames_of(self.settings["chunk_ms"], frame_rate), seed=self.seed)


@dataclass(frozen=True)
class Expansion:
    """The units of a study in their order: configurations, then seeds, then prompts.

    Attributes:
        dropped: combinations that are no configurations of their own, by reason.
    """

    units: list[Unit]
    dropped: dict[str, int]

    @property
    def configurations(self) -> list[str]:
        return list(dict.fromkeys(unit.configuration for unit in self.units))


def read_study(path: Path) -> StudySpec:
    """The study of a file; `StudyError` in one line where it cannot be read."""
    try:
        return study_of(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: no valid TOML: {error}") from None


def study_of(written: Mapping[str, Any], where: str) -> StudySpec:
    """The study of a mapping; `where` it was written begins every complaint."""
    try:
        spec = StudySpec.model_validate(dict(written))
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in found["loc"])
        if found["type"] == "extra_forbidden":
            raise StudyError(
                f"{where}: {place}: unknown key; allowed are {', '.join(StudySpec.model_fields)}"
            ) from None
        given = "" if found["type"] == "missing" else f", not {found['input']!r}"
        raise StudyError(f"{where}: {place}: {found['msg'][:1].lower()}{found['msg'][1:]}{given}") from None
    for name, value in spec.settings.items():
        if name not in SETTINGS:
            raise StudyError(f"{where}: settings.{name}: unknown; allowed are {', '.join(SETTINGS)}")
        if value == []:
            raise StudyError(f"{where}: settings.{name}: an empty list; give a value or several")
    for name in ("engine", "scorer", "prompts", "seeds"):
        _refuse_twins(f"{where}: {name}", getattr(spec, name))
    return spec


def expand(spec: StudySpec) -> Expansion:
    """All units of a study.

    Of combinations with a beam wider than `n` there are none. With `n=1` nothing is chosen, so beam width, chunk
    length and scorer change nothing: there is one configuration for all of them. Control arms have one beam and the
    first chunk length.

    Raises:
        StudyError: a value is not allowed.
        PromptError: a prompt file cannot be used.
    """
    prompts = [prompt for source in spec.prompts for prompt in read_prompts(source)]
    _refuse_twins("prompts: the id", [prompt.id for prompt in prompts])
    varied = {name: _listed(spec.settings.get(name, _default(name))) for name in SETTINGS}
    for name, values in varied.items():
        _refuse_twins(f"settings.{name}", values)
    several = {name for name, values in varied.items() if len(values) > 1}
    names = _short_names(spec.engine) | _short_names([*spec.scorer, CONTROL])
    units: list[Unit] = []
    seen: dict[str, Any] = {}
    dropped: dict[str, int] = {}
    for engine, scorer, settings in _combinations(spec, varied):
        if _number(settings["beam_width"]) > _number(settings["n"]) > 1:
            dropped["beam_width above n"] = dropped.get("beam_width above n", 0) + 1
            continue
        label = _label(engine, scorer, settings, spec, several, names)
        if label in seen:
            assert seen[label] == (engine, scorer, settings), label
            reason = "n = 1 once" if settings["n"] == 1 else "a control arm that is there already"
            dropped[reason] = dropped.get(reason, 0) + 1
            continue
        seen[label] = (engine, scorer, settings)
        _check(settings)
        units += [
            Unit(label, engine, scorer, _reward(scorer), settings, prompt, seed)
            for seed in spec.seeds
            for prompt in prompts
        ]
    return Expansion(units, dropped)


def _combinations(spec: StudySpec, varied: Mapping[str, list[Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Engine, scorer and settings of everything that is asked for, control arms last."""
    first = {"beam_width": 1, "chunk_ms": varied["chunk_ms"][0]}
    for engine, scorer, *values in itertools.product(spec.engine, spec.scorer, *varied.values()):
        settings: dict[str, Any] = dict(zip(varied, values, strict=True))
        plain = settings["n"] == 1
        yield engine, spec.scorer[0] if plain else scorer, settings | first if plain else settings
    others = {name: values for name, values in varied.items() if name not in ("n", *first)}
    for engine, n, *values in itertools.product(spec.engine, spec.control_n, *others.values()):
        yield engine, CONTROL, {**dict.fromkeys(varied), **first, "n": n, **dict(zip(others, values, strict=True))}


def frames_of(chunk_ms: float | str, frame_rate: Fraction) -> int:
    """Frames of a chunk; `StudyError` where it is no whole number of them."""
    if chunk_ms == WHOLE:
        return WHOLE_UTTERANCE
    frames = Fraction(str(chunk_ms)) * frame_rate / 1000
    if frames.denominator != 1 or frames < 1:
        frame_ms = float(1000 / frame_rate)
        raise StudyError(f"settings.chunk_ms: {chunk_ms} is not a whole number of frames of {frame_ms:g} ms")
    return int(frames)


def _default(name: str) -> Any:
    return 800 if name == "chunk_ms" else SearchConfig.__dataclass_fields__[name].default


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) else 0.0


def _check(settings: Mapping[str, Any]) -> None:
    """Every field is one that a search takes; the chunk's length waits for the engine's frame rate."""
    chunk = settings["chunk_ms"]
    if chunk != WHOLE and (isinstance(chunk, bool) or not isinstance(chunk, (int, float)) or not chunk > 0):
        raise StudyError(f"settings.chunk_ms: {chunk!r}; allowed are milliseconds above 0, or {WHOLE!r}")
    try:
        SearchConfig(**{name: value for name, value in settings.items() if name != "chunk_ms"})
    except (ValueError, TypeError) as error:
        raise StudyError(f"settings.{error}") from None


def _reward(scorer: str) -> str:
    path = REWARDS / f"{scorer}.toml" if scorer in named_rewards() else Path(scorer).expanduser()
    if path.suffix != ".toml":
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StudyError(f"scorer: {path}: {error.strerror or error}") from None


def _short_names(specs: Sequence[str]) -> dict[str, str]:
    """The last part of every spec, without a file's ending; where two would have one name, all keep theirs whole."""
    whole = list(dict.fromkeys(specs))
    shorter = ([Path(spec).stem for spec in whole], [Path(spec).name for spec in whole], whole)
    return dict(zip(whole, next(names for names in shorter if len(set(names)) == len(whole)), strict=True))


def _label(
    engine: str,
    scorer: str,
    settings: Mapping[str, Any],
    spec: StudySpec,
    several: set[str],
    names: Mapping[str, str],
) -> str:
    """Short, and of every configuration another: whatever varies is in it, where it makes a difference."""
    plain, control = settings["n"] == 1, scorer not in spec.scorer
    parts = [names[engine]] if len(spec.engine) > 1 else []
    parts += [names[scorer]] if control or (len(spec.scorer) > 1 and not plain) else []
    without = {"beam_width", "chunk_ms"} if plain or control else set()
    named = (several - without) | {"n"}
    return "-".join([*parts, *(f"{_SHORT.get(name, name)}{settings[name]}" for name in SETTINGS if name in named)])


def _refuse_twins(where: str, values: Sequence[Any]) -> None:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise StudyError(f"{where}: {value!r} is there twice")
