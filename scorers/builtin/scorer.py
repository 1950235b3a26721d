"""The listener as a scorer: hears new PCM, moves each row's forkable state, judges all that was said so far.

Every chunk costs the same, but for the transcript, whose alignment grows with the text. Knows nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scorers.builtin.features import (
    MELS,
    SAMPLE_RATE,
    Ear,
    bands_below,
    hann,
    listen,
    mel_filters,
    open_ear,
    steps_after,
)
from scorers.builtin.free import FreeReading, open_reading, read_on, sounds_of
from scorers.builtin.network import LEAST_STEPS, Recogniser
from scorers.builtin.prefix import advance, open_lattice
from scorers.builtin.reading import Reading, align
from scorers.builtin.reward import judge
from scorers.builtin.target import Lanes, Target, lanes_of, target_of
from scorers.builtin.weights import WEIGHTS
from scorers.builtin.weights import load as load_weights
from scorers.heads import Term
from scorers.resample import Resampler, ResamplerState
from search.protocols import Scores
from search.request import SpeechRequest
from search.state import fork_rows, shared

FLUSH_SECONDS = 0.24
"""Of silence that is imagined after a row that has finished, so that its last sounds are heard to the end."""

PASS_BAND = 0.92
"""Part of the frequencies below half its rate that audio can be trusted to have: filters end before."""

LOWEST_RATE = 4000

Words = Sequence[tuple[str, Sequence[int]]]


@dataclass
class ListenerState:
    """What is remembered of the rows; rows on axis 0.

    Attributes:
        resampler: None where the audio comes at the listener's own rate.
        memory: of the network, one float32 [R, steps, width] a block.
        forward: float32 [R, W], the lattice.
        broken: bool [R], the audio held something that is no number.
    """

    resampler: ResamplerState | None
    ear: Ear
    memory: list[Tensor]
    forward: Tensor
    reading: FreeReading
    broken: Tensor
    lanes: Lanes = shared()  # noqa: RUF009 - a marker, no value


class Listener:
    """Scores speech against its text with a small phoneme recogniser.

    Args:
        network: in evaluation mode, on the device where scoring happens.
        phonemize: the words of a text, each with its symbol ids.
    """

    name = "listener"
    rereads = False
    terms = (
        Term("match", meaning="sounds mis-said, missing or extra so far, in errors per sound of the text, negative"),
        Term("pace", meaning="what being late costs, in the same unit"),
        Term("end", meaning="what ending costs, or is worth, in the same unit"),
        Term("progress", meaning="part of the text that has been said, 0 to 1"),
        Term("prefix_wer", "lower", "word errors over the words that should have been heard by now"),
    )

    def __init__(self, network: Recogniser, phonemize: Callable[[str], Words]) -> None:
        self.network, self.phonemize = network.eval(), phonemize
        self.device = network.head.weight.device
        self.mel, self.window = mel_filters().to(self.device), hann().to(self.device)

    @classmethod
    def load(cls, path: Path = WEIGHTS, device: torch.device | str = "cpu") -> Listener:
        """The shipped listener, or the one stored at `path`."""
        from codec.builtin.phonemes import phonemize

        return cls(load_weights(path).to(device), lambda text: phonemize(text).words)

    def open(self, requests: Sequence[SpeechRequest], n: int, sample_rate: int, hop: int) -> ListenerStream:  # noqa: ARG002
        """Phonemes of the texts, and nothing heard yet. Audio of another rate is resampled; bands it lacks are guessed.

        Raises:
            ValueError: the rate is too low for speech.
        """
        if sample_rate < LOWEST_RATE:
            raise ValueError(f"sample_rate: {sample_rate} Hz; the listener needs {LOWEST_RATE} Hz or more")
        targets = [target_of(self.phonemize(request.text), self.network.seconds) for request in requests]
        if sample_rate == SAMPLE_RATE:
            return ListenerStream(self, targets, n, None, MELS)
        bands = MELS if sample_rate > SAMPLE_RATE else bands_below(self.mel, PASS_BAND * sample_rate / 2)
        return ListenerStream(self, targets, n, Resampler(sample_rate, SAMPLE_RATE, self.device), bands)


class ListenerStream:
    """The rows of some requests, heard by one listener."""

    def __init__(
        self, listener: Listener, targets: Sequence[Target], n: int, resampler: Resampler | None, bands: int
    ) -> None:
        self._listener, self._targets, self._n = listener, targets, n
        self._resampler, self._bands = resampler, bands
        rows, device = len(targets) * n, listener.device
        lanes = lanes_of(targets, n, device)
        self._state: ListenerState | None = ListenerState(
            resampler=resampler.open(rows) if resampler else None,
            ear=open_ear(rows, device),
            memory=listener.network.memory(rows, device),
            forward=open_lattice(lanes),
            reading=open_reading(rows, device),
            broken=torch.zeros(rows, dtype=torch.bool, device=device),
            lanes=lanes,
        )

    @torch.inference_mode()
    def score(self, pcm: Tensor, lengths: Tensor, finished: Tensor) -> Scores:
        """Listen to new samples (float32 [R, S], `lengths` int64 [R] of them real) and judge every row so far.

        Heads: match, pace, end (see `reward.py`), progress, prefix_wer. All of them and the reward are NaN where
        nothing can be judged: nothing heard yet, a text without sounds, audio that is no number.
        """
        state, network = self._open_state, self._listener.network
        device = self._listener.device
        pcm, lengths, finished = pcm.to(device), lengths.to(device), finished.to(device)
        new = torch.arange(pcm.shape[1], device=device) < lengths[:, None]
        state.broken = state.broken | (new & ~pcm.isfinite()).any(1)
        pcm = torch.where(state.broken[:, None], 0.0, pcm)
        if self._resampler is not None and state.resampler is not None:
            pcm, lengths = self._resampler.hear(state.resampler, pcm, lengths, finished)
        silence = int(FLUSH_SECONDS * SAMPLE_RATE) if bool(finished.any()) else 0
        batch = listen(state.ear, pcm, lengths, self._listener.mel, self._listener.window, silence, LEAST_STEPS)
        features = batch.features if self._bands == MELS else network.widened(batch.features, self._bands)
        log_probabilities, state.memory = network.read(features, state.memory, batch.real)
        judged = torch.where(finished, batch.imagined, batch.real)
        state.forward, ahead = advance(state.forward, state.lanes, log_probabilities, batch.real, judged)
        heard = read_on(state.reading, log_probabilities, judged).heard
        state.reading = read_on(state.reading, log_probabilities, batch.real)
        return self._scores(ahead, heard, finished)

    def fork(self, parents: Tensor) -> None:
        """Row (b, i) goes on as old row (b, parents[b, i]); int64 [B, N]."""
        fork_rows(self._open_state, parents)

    def commit(self, frames: Tensor) -> None:
        """Nothing to do: what a row remembers does not grow with what is uncommitted."""

    def close(self) -> None:
        """Forget everything."""
        self._state = None

    @property
    def _open_state(self) -> ListenerState:
        if self._state is None:
            raise RuntimeError("listener: the stream is closed; open a new one")
        return self._state

    def _scores(self, ahead: Tensor, heard: Tensor, finished: Tensor) -> Scores:
        state = self._open_state
        terms = judge(ahead, state.lanes, state.ear.heard / SAMPLE_RATE, finished)
        unheard = (steps_after(state.ear.heard) == 0) & ~finished
        mute = state.lanes.sounds == 0
        unknown = unheard | mute | state.broken
        readings = [
            align(row, self._targets[place // self._n], over)
            for place, (row, over) in enumerate(zip(sounds_of(heard), finished.tolist(), strict=True))
        ]
        why = {
            place: reason
            for flags, reason in (
                (unheard, "nothing heard yet"),
                (mute, "text without sounds"),
                (state.broken, "audio is not finite"),
            )
            for place in flags.nonzero()[:, 0].tolist()
        }
        prefix_wer = torch.tensor([reading.wer for reading in readings], dtype=torch.float32, device=unknown.device)
        heads = {"match": terms.match, "pace": terms.pace, "end": terms.end, "progress": terms.progress}
        heads["prefix_wer"] = prefix_wer
        # A term alone may be what a reward counts, and 0 would be the best of it.
        heads = {name: head.masked_fill(unknown, torch.nan).cpu() for name, head in heads.items()}
        notes = [_note(reading, why.get(row)) for row, reading in enumerate(readings)]
        return Scores(terms.reward.masked_fill(unknown, torch.nan).cpu(), heads, notes)


def _note(reading: Reading, why: str | None) -> dict[str, Any]:
    note: dict[str, Any] = {"transcript": reading.transcript, "word_errors": reading.errors}
    return note | ({"not_judged": why} if why else {})


def load(device: torch.device) -> Listener:
    """The shipped listener, as a head."""
    return Listener.load(device=device)
