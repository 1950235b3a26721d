"""What a row should say: the text's sounds in order, the words they belong to, and when each is due.

Built once for a request and shared by its rows. Knows nothing of audio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scorers.builtin.symbols import BLANK, class_of


@dataclass(frozen=True)
class Target:
    """One text.

    Attributes:
        classes: of its sounds.
        word_of: for each sound, which of `words` it belongs to.
        words: orthography.
        due: seconds, one more than sounds: `due[i]` is when an ordinary reading has said i sounds, pauses included.
    """

    classes: list[int]
    word_of: list[int]
    words: list[str]
    due: list[float]


def target_of(words: Sequence[tuple[str, Sequence[int]]], seconds: Tensor) -> Target:
    """The target of words with their symbol ids, punctuation and spaces among them.

    seconds: float32 [180], what each symbol usually takes.
    """
    usual = seconds.tolist()
    classes: list[int] = []
    word_of: list[int] = []
    spoken: list[str] = []
    due, clock = [0.0], 0.0
    for word, symbols in words:
        sounds = 0
        for symbol in symbols:
            clock += usual[symbol]
            if found := class_of(symbol):
                classes.append(found)
                word_of.append(len(spoken))
                due.append(clock)
                sounds += 1
        if sounds:
            spoken.append(word)
    return Target(classes, word_of, spoken, due)


@dataclass(frozen=True)
class Lanes:
    """The targets of all rows as the states of a CTC lattice: blank, sound, blank, sound, ..., blank.

    Attributes:
        emitted: int64 [R, W], the class that each state emits.
        skips: bool [R, W], the state may be entered from two states back, over the blank.
        exists: bool [R, W], the state belongs to the row's text; W is the same for all rows.
        sounds: int64 [R], of the whole text.
        due: float32 [R, W], `Target.due` of the sounds said in each state.
    """

    emitted: Tensor
    skips: Tensor
    exists: Tensor
    sounds: Tensor
    due: Tensor


def lanes_of(targets: Sequence[Target], n: int, device: torch.device) -> Lanes:
    """One lane a row, the same for the n rows of a target."""
    width = max(2 * len(target.classes) + 1 for target in targets)
    emitted = torch.full((len(targets), width), BLANK)
    due = torch.zeros(len(targets), width)
    for place, target in enumerate(targets):
        emitted[place, 1 : 2 * len(target.classes) : 2] = torch.tensor(target.classes, dtype=torch.int64)
        said = (torch.arange(2 * len(target.classes) + 1) + 1) // 2
        due[place, : said.numel()] = torch.tensor(target.due)[said]
    sounds = torch.tensor([len(target.classes) for target in targets])
    skips = torch.zeros(emitted.shape, dtype=torch.bool)
    skips[:, 2:] = (emitted[:, 2:] != BLANK) & (emitted[:, 2:] != emitted[:, :-2])
    exists = torch.arange(width) < (2 * sounds + 1)[:, None]
    parts = (emitted, skips, exists, sounds, due)
    return Lanes(*(part.repeat_interleave(n, 0).to(device) for part in parts))
