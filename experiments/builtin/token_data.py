"""Utterances as rows of token ids, in padded batches of like length.

It knows the layout of `tokens.safetensors` and of the voice's prompts. It does not know what a network does with a
batch, nor what the codes sound like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor

from engine.moss.config import SpecialIds
from experiments.builtin.whole import written_whole

HOPS = 8  # 10 ms hops of a frame, the unit of `ends`
_FIELDS = ("codes", "frame_offsets", "phonemes", "phoneme_offsets", "phoneme_ends")


@dataclass(frozen=True)
class Utterance:
    """One reading: `codes` int16 `[T, q]`, `symbols` int16 `[S]`, and where each symbol ends, float32 `[S]` in hops."""

    codes: NDArray[np.int16]
    symbols: NDArray[np.int16]
    ends: NDArray[np.float32]


def load_utterances(path: Path) -> list[Utterance]:
    """Read a token file; raises `SystemExit` where it is missing or incomplete."""
    if not path.exists():
        raise SystemExit(f"{path} does not exist: run the codec stage, which writes it")
    stored = load_file(path)
    missing = [name for name in _FIELDS if name not in stored]
    if missing:
        raise SystemExit(f"{path}: tensor {missing[0]} is missing; it has {', '.join(sorted(stored))}")
    frames, symbols = stored["frame_offsets"], stored["phoneme_offsets"]
    return [
        Utterance(
            stored["codes"][frames[i] : frames[i + 1]],
            stored["phonemes"][symbols[i] : symbols[i + 1]],
            stored["phoneme_ends"][symbols[i] : symbols[i + 1]],
        )
        for i in range(len(frames) - 1)
    ]


def save_utterances(utterances: Sequence[Utterance], path: Path) -> None:
    """Write a token file that `load_utterances` reads back."""

    def offsets(lengths: list[int]) -> NDArray[np.int64]:
        return np.cumsum([0, *lengths], dtype=np.int64)

    tensors: dict[str, NDArray[Any]] = {
        "codes": np.concatenate([u.codes for u in utterances]).astype(np.int16),
        "frame_offsets": offsets([len(u.codes) for u in utterances]),
        "phonemes": np.concatenate([u.symbols for u in utterances]).astype(np.int16),
        "phoneme_offsets": offsets([len(u.symbols) for u in utterances]),
        "phoneme_ends": np.concatenate([u.ends for u in utterances]).astype(np.float32),
    }
    with written_whole(path) as partial:
        save_file(tensors, partial)


@dataclass(frozen=True)
class Batch:
    """B utterances, right-padded to L rows: prompt, then frames. q = codebooks.

    Attributes:
        rows: int64 `[B, L, 1 + q]`, text id and codes of every row.
        spoken: bool `[B, L]`, rows that are frames.
        decides: bool `[B, L]`, rows whose hidden state decides what comes next: the last of the prompt, and all frames.
        stops: bool `[B, L]`, the deciding rows after which nothing comes.
        targets: int64 `[B, L, q]`, codes of the next frame; 0 where there is none.
        first, last: int64 `[B, L]`, the prompt rows (inclusive) of the symbols that the next frame announces;
            `last < first` where a row has none.
    """

    rows: Tensor
    spoken: Tensor
    decides: Tensor
    stops: Tensor
    targets: Tensor
    first: Tensor
    last: Tensor


def aligned_symbols(ends: NDArray[np.float32], frames: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last symbol (inclusive) that sound in frame t + 1, for t = 0..frames; past the end the last one."""
    start = (np.arange(frames + 1) + 1.0) * HOPS
    final = len(ends) - 1
    first = np.minimum(np.searchsorted(ends, start, side="right"), final)
    last = np.minimum(np.searchsorted(ends, start + HOPS, side="left"), final)
    return first.astype(np.int64), last.astype(np.int64)


def prompt_ids(symbols: NDArray[np.int16], ids: SpecialIds) -> list[int]:
    """Text ids of a prompt; no symbols give the unconditional one."""
    return [ids.im_start, *symbols.tolist(), ids.im_end, ids.audio_start]


def collate(utterances: Sequence[Utterance], unconditional: Sequence[bool], ids: SpecialIds, audio_pad: int) -> Batch:
    """Pad utterances into one batch; those marked `unconditional` lose the symbols of their prompt."""
    prompts = [
        prompt_ids(u.symbols[:0] if bare else u.symbols, ids) for u, bare in zip(utterances, unconditional, strict=True)
    ]
    size, books = len(utterances), utterances[0].codes.shape[1]
    length = max(len(prompt) + len(u.codes) for prompt, u in zip(prompts, utterances, strict=True))
    rows = np.full((size, length, 1 + books), audio_pad, np.int64)
    rows[..., 0] = ids.pad
    targets = np.zeros((size, length, books), np.int64)
    spoken, decides, stops = (np.zeros((size, length), np.bool_) for _ in range(3))
    first, last = np.zeros((size, length), np.int64), np.full((size, length), -1, np.int64)
    for b, (prompt, utterance) in enumerate(zip(prompts, utterances, strict=True)):
        start, stop = len(prompt), len(prompt) + len(utterance.codes)
        rows[b, :start, 0] = prompt
        rows[b, start:stop, 0] = ids.assistant_slot
        rows[b, start:stop, 1:] = utterance.codes
        targets[b, start - 1 : stop - 1] = utterance.codes
        spoken[b, start:stop] = True
        decides[b, start - 1 : stop] = True
        stops[b, stop - 1] = True
        if not unconditional[b]:
            aligned = aligned_symbols(utterance.ends, len(utterance.codes))
            first[b, start - 1 : stop], last[b, start - 1 : stop] = aligned[0] + 1, aligned[1] + 1
    tensors = (torch.from_numpy(array) for array in (rows, spoken, decides, stops, targets, first, last))
    return Batch(*tensors)


class Batches:
    """An endless, seeded stream of batches: utterances of like length together, at most `rows` rows with padding."""

    def __init__(
        self, utterances: Sequence[Utterance], ids: SpecialIds, audio_pad: int, rows: int, unconditional: float
    ) -> None:
        self._utterances, self._ids, self._audio_pad = utterances, ids, audio_pad
        self._rows, self._unconditional = rows, unconditional
        self._lengths = np.asarray([len(u.symbols) + 3 + len(u.codes) for u in utterances])

    def epoch(self, number: int, seed: int) -> Iterator[Batch]:
        """All utterances once, in an order that `seed` and `number` fix."""
        rng = np.random.default_rng([seed, number])
        groups = self._groups(rng)
        for group in (groups[place] for place in rng.permutation(len(groups))):
            bare = (rng.random(len(group)) < self._unconditional).tolist()
            yield collate([self._utterances[i] for i in group], bare, self._ids, self._audio_pad)

    def _groups(self, rng: np.random.Generator) -> list[list[int]]:
        jittered = self._lengths + rng.integers(-4, 5, len(self._lengths))
        groups: list[list[int]] = []
        group: list[int] = []
        longest = 0
        for index in np.lexsort((rng.random(len(jittered)), jittered)).tolist():
            grown = max(longest, int(self._lengths[index]))
            if group and grown * (len(group) + 1) > self._rows:
                groups.append(group)
                group, grown = [], int(self._lengths[index])
            group.append(index)
            longest = grown
        return [*groups, group]
