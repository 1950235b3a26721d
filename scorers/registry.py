"""Names of scorers and heads, and the functions that turn a name into an object. Knows nothing of how a head works.

Heads are imported when they are asked for, so that none of them costs anything to those who use another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from scorers.composite import Composite
from scorers.composition import REWARDS, HeadSpec, RewardSpec, named_rewards, read_reward
from scorers.heads import Head
from scorers.placed import Here, PlacedHead
from search.devices import device_of
from search.protocols import Scorer


@dataclass(frozen=True)
class Kind:
    """Where a head comes from.

    Attributes:
        module: has `load(device, **options)`; its keyword-only parameters are the head's options.
        extra: of this distribution, which installs what the module imports.
        main: the option that a spec `kind:value` gives; None where there is no such spec.
    """

    module: str
    extra: str | None = None
    main: str | None = None


KINDS: dict[str, Kind] = {
    "fake": Kind("scorers.fake"),
    "random": Kind("scorers.chance"),
    "listener": Kind("scorers.builtin.scorer"),
    "clap": Kind("scorers.clap", "clap", "model"),
    "naturalness": Kind("scorers.naturalness", "naturalness"),
    "speaker": Kind("scorers.speaker", "speaker"),
    "voiceclap": Kind("scorers.voiceclap", "voiceclap", "model"),
    "whisper": Kind("scorers.whisper", "offline", "model"),
}


def load_scorer(spec: str, device: torch.device | str | None = None) -> Scorer:
    """The scorer of a spec, on `device` (None: the CPU).

    `spec` is the name of a reward that comes with the package ("builtin", "intelligibility"), a TOML file, or a head by
    itself: its kind ("speaker"), or kind and model ("whisper:base").

    Raises:
        ValueError: nothing has this name (the message lists what there is), a file or an option is wrong, a package is
            missing, or the device is not there.
    """
    if not isinstance(spec, str):
        raise TypeError(f"scorer: {spec!r} is a {type(spec).__name__}; give a name such as 'builtin', or a TOML file")
    where = device_of(device)
    if spec in named_rewards():
        return load_reward(spec, read_reward(REWARDS / f"{spec}.toml"), where)
    if spec.endswith(".toml"):
        path = Path(spec).expanduser()
        return load_reward(path.stem, read_reward(path), where)
    kind, options = _head_of(spec)
    return load_head(kind, options, str(where))


def check_scorer(spec: str) -> None:
    """Raises what `load_scorer` would for a name, a file, an option or a missing package; loads no model."""
    if spec in named_rewards() or spec.endswith(".toml"):
        path = REWARDS / f"{spec}.toml" if spec in named_rewards() else Path(spec).expanduser()
        _check_heads(path.stem, read_reward(path))
        return
    kind, options = _head_of(spec)
    _head_loader(kind, options)


def load_head(kind: str, options: Mapping[str, Any], device: str) -> Head:
    """One head, with the options of a TOML table. A function of its own, with arguments that another process can take.

    Raises:
        ValueError: the kind or an option is not known, a package is missing, the device is not there, or whatever is
            wrong with a value.
    """
    where = device_of(device)
    load = _head_loader(kind, options)
    with _installed(kind):
        return load(where, **options)


def load_reward(name: str, spec: RewardSpec, device: torch.device) -> Composite:
    """The scorer of a reward, every head where the reward wants it."""
    placed: dict[str, PlacedHead] = {}
    with ExitStack() as starting:
        _check_heads(name, spec)
        for head, one in spec.heads.items():
            with _named(f"{name}: heads.{head}"):
                placed[head] = _placed(head, one, str(one.device or device))
            starting.callback(placed[head].close)
        composite = Composite(name, spec, placed, device)
        starting.pop_all()
    return composite


def _head_of(spec: str) -> tuple[str, dict[str, str]]:
    """Kind and options of a head that is a scorer by itself."""
    kind, colon, value = spec.partition(":")
    if kind not in KINDS or (colon and not (KINDS[kind].main and value)):
        heads = [f"{name}:{one.main.upper()}" if one.main else name for name, one in sorted(KINDS.items())]
        allowed = ", ".join([*named_rewards(), *heads, "FILE.toml"])
        raise ValueError(f"scorer: {spec!r} is not known; allowed are {allowed}")
    main = KINDS[kind].main
    return kind, {main: value} if main and colon else {}


def _check_heads(name: str, spec: RewardSpec) -> None:
    for head, one in spec.heads.items():
        with _named(f"{name}: heads.{head}"):
            _head_loader(one.kind or head, one.options)


def _placed(name: str, spec: HeadSpec, device: str) -> PlacedHead:
    load = partial(load_head, spec.kind or name, spec.options, device)
    if spec.place == "here":
        return Here(load())
    from scorers.worker import InProcess, InThread

    return (InThread if spec.place == "thread" else InProcess)(load, deadline_seconds=spec.deadline_seconds)


def _head_loader(kind: str, options: Mapping[str, Any]) -> Callable[..., Head]:
    """The function that loads a head of that kind; raises for options that it does not take, and loads nothing."""
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is not known; allowed are {', '.join(sorted(KINDS))}")
    with _installed(kind):
        load: Callable[..., Head] = import_module(KINDS[kind].module).load
    parameters = inspect.signature(load).parameters.values()
    allowed = {one.name: one.default is one.empty for one in parameters if one.kind is one.KEYWORD_ONLY}
    for option in options:
        if option not in allowed:
            has = f"allowed are {', '.join(allowed)}" if allowed else "this head has no options"
            raise ValueError(f"{kind}: {option!r} is no option; {has}")
    missing = [option for option, needed in allowed.items() if needed and option not in options]
    if missing:
        raise ValueError(f"{kind}: the option {missing[0]!r} is needed")
    return load


@contextmanager
def _installed(kind: str) -> Iterator[None]:
    """A missing package is answered with the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = KINDS[kind].extra
        cure = f"; install it with: pip install 'chunksearch[{extra}]'" if extra else ""
        raise ValueError(f"{kind}: the package {error.name!r} is not installed{cure}") from error


@contextmanager
def _named(where: str) -> Iterator[None]:
    """What is wrong with a value gets the place where the value stands."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
