"""A reward of several heads: lets them all hear, then adds up what they find as a `RewardSpec` says.

Knows neither where a head runs nor how it hears.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from scorers.composition import RewardSpec, TwoStage
from scorers.heads import Term
from scorers.placed import FailedStream, HeadError, Here, PlacedHead, PlacedStream
from scorers.reward import Gate, WeightedTerm, compose
from search.protocols import Scores
from search.request import SpeechRequest


class Composite:
    """A scorer made of heads.

    A term is called by its own name where it is the first of that name in the order of the heads, else `head.term`.
    What a head would give by itself is a term too, with the head's name, unless the head has a term of that name.

    Args:
        heads: by their names in `spec`, in order.

    Raises:
        ValueError: a term or gate names something that no head finds, a gate is the wrong way round, or rows are to be
            left out by a head that cannot.
    """

    def __init__(self, name: str, spec: RewardSpec, heads: Mapping[str, PlacedHead], device: torch.device) -> None:
        assert list(heads) == list(spec.heads), f"{list(heads)} and {list(spec.heads)}"
        self.name, self.spec, self.device = name, spec, device
        self.heads = dict(heads)
        self.rereads = any(head.rereads for head in heads.values())
        self.names, known = _public_names(heads)
        self.terms = tuple(known.values())
        for kind, names in (("terms", spec.terms), ("gates", spec.gates)):
            for asked in names:
                if asked not in known:
                    raise ValueError(f"{name}: {kind}.{asked}: no head finds it; allowed are {', '.join(known)}")
        for head, placed in self.heads.items():
            if spec.heads[head].two_stage is not None and not placed.rereads:
                raise ValueError(f"{name}: heads.{head}.two_stage: this head hears every row as it goes")
        self._weighted = {
            term: WeightedTerm(known[term].sign, one.weight, one.normalise, one.mean or 0.0, one.sd or 1.0)
            for term, one in spec.terms.items()
        }
        self._gates = {term: Gate(known[term].sign, one.full, one.zero) for term, one in spec.gates.items()}
        for term, gate in self._gates.items():
            if gate.sign * gate.full < gate.sign * gate.zero:
                raise ValueError(
                    f"{name}: gates.{term}: full = {gate.full:g} is worse than zero = {gate.zero:g}; "
                    f"{known[term].better} is better here"
                )

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> CompositeStream:
        """Open every head; raises what a head raises for a request that it cannot judge.

        Raises:
            HeadError: a head has no stream, and its `on_failure` is "error".
        """
        with ExitStack() as opening:
            streams: dict[str, PlacedStream] = {}
            for name, head in self.heads.items():
                try:
                    streams[name] = head.open(requests, n, sample_rate, hop)
                except HeadError as error:
                    if self.spec.heads[name].on_failure == "error":
                        raise
                    streams[name] = FailedStream(error)
                opening.callback(streams[name].close)
            opening.pop_all()
        return CompositeStream(self, streams, n)

    def close(self) -> None:
        """Give back what heads occupy elsewhere."""
        with ExitStack() as closing:
            for head in self.heads.values():
                closing.callback(head.close)

    def reward(self, raw: Mapping[str, Tensor], n: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Reward and shares, float32 [R] each, of raw terms [R]; see `compose`."""
        used = {*self._weighted, *self._gates}
        reward, shares = compose({name: raw[name].view(-1, n) for name in used}, self._weighted, self._gates)
        return reward.flatten(), {name: share.flatten() for name, share in shares.items()}


class CompositeStream:
    """The rows of some requests, heard by all heads."""

    def __init__(self, composite: Composite, streams: Mapping[str, PlacedStream], n: int) -> None:
        self._composite, self._streams, self._n = composite, streams, n

    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        """Hear the new audio with every head, those that wait for another's choice last, and compose.

        Raises:
            HeadError: a head failed whose `on_failure` is "error".
        """
        stages = {name: spec.two_stage for name, spec in self._composite.spec.heads.items()}
        found: dict[str, Scores | HeadError] = {}
        for later in (False, True):
            names = [name for name, stage in stages.items() if (stage is not None) == later]
            names.sort(
                key=lambda name: isinstance(self._composite.heads[name], Here)
            )  # who runs here holds up the rest
            for name in names:
                wanted = None if stages[name] is None else self._best(stages[name], found)
                self._streams[name].begin(pcm, lengths, finished, wanted)
            for name in names:
                try:
                    found[name] = self._streams[name].result()
                except HeadError as error:
                    found[name] = error
        failed = [error for error in found.values() if isinstance(error, HeadError)]
        for name, outcome in found.items():
            if isinstance(outcome, HeadError) and self._composite.spec.heads[name].on_failure == "error":
                raise outcome
        raw, notes = self._gathered({name: found[name] for name in stages}, len(finished))
        reward, shares = self._composite.reward(raw, self._n)
        for row, note in enumerate(notes):
            note["shares"] = {name: float(share[row]) for name, share in shares.items()}
            if failed:
                note["failed"] = [str(error) for error in failed]
        return Scores(reward, raw, notes)

    def fork(self, parents: Tensor) -> None:
        for stream in self._streams.values():
            stream.fork(parents)

    def commit(self, frames: Tensor) -> None:
        for stream in self._streams.values():
            stream.commit(frames)

    def close(self) -> None:
        with ExitStack() as closing:
            for stream in self._streams.values():
                closing.callback(stream.close)

    def _best(self, stage: TwoStage | None, found: Mapping[str, Scores | HeadError]) -> Tensor | None:
        """Rows that a second stage hears, bool [R]; None, all of them, where the first stage has nothing to say."""
        assert stage is not None
        first = found[stage.by]
        if isinstance(first, HeadError):
            return None
        rewards = first.reward.view(-1, self._n).nan_to_num(-torch.inf)
        order = rewards.sort(dim=1, descending=True, stable=True).indices
        return torch.zeros_like(rewards, dtype=torch.bool).scatter(1, order[:, : stage.top], True).flatten()

    def _gathered(
        self, found: Mapping[str, Scores | HeadError], rows: int
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Every raw term under its name in this reward, and the notes of all heads, the first of a name first."""
        raw: dict[str, Tensor] = {}
        notes: list[dict[str, Any]] = [{} for _ in range(rows)]
        for head, outcome in found.items():
            if isinstance(outcome, HeadError):
                raw |= {public: torch.full((rows,), torch.nan) for public in self._composite.names[head].values()}
                continue
            terms = {head: outcome.reward} | outcome.heads
            raw |= {public: terms[own].cpu().float() for own, public in self._composite.names[head].items()}
            for note, said in zip(notes, outcome.notes, strict=True):
                note.update({key if key not in note else f"{head}.{key}": value for key, value in said.items()})
        return raw, notes


def _public_names(heads: Mapping[str, PlacedHead]) -> tuple[dict[str, dict[str, str]], dict[str, Term]]:
    """Of every head, its terms' own names and those that they have in a reward; and the terms by the latter."""
    names: dict[str, dict[str, str]] = {}
    known: dict[str, Term] = {}
    for head, placed in heads.items():
        terms = {head: Term(head, "higher", f"what {placed.name} gives by itself")}
        terms |= {term.name: term for term in placed.terms}
        names[head] = {own: own if own not in known else f"{head}.{own}" for own in terms}
        known |= {names[head][own]: term for own, term in terms.items()}
    return names, known
