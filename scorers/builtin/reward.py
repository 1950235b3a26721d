"""From a lattice to one number: match, pace and end, in errors per sound of the text. Knows no network and no words.

    reward = match + pace + end, and with S sounds in the text, a = forward variables relative to the free reading,
    s* = argmax_s a(s) - finished * WORST * (S - said(s)):
        match = a(s*) / WORST / S                   sounds mis-said, missing or extra so far; about 0 when all is right
        pace  = -PACE * late / S                    late: seconds behind the slowest ordinary reading that is at s*
        end   = finished * (DONE - (S - said(s*))) / S    sounds never said; having said all of it beats being open

So one sound that is clearly wrong, missing or too much costs 1 / S, whenever it happens: more errors never raise a
reward, silence falls behind at PACE sounds a second, and a pause where the text has a comma is part of `due`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scorers.builtin.prefix import WORST, sounds_said
from scorers.builtin.target import Lanes

PACE = 4.0  # sounds of the text that a second of delay costs
GRACE_SECONDS = 0.6  # of silence before the first sound, and of what the recogniser needs to make up its mind
SLOWEST = 1.3  # a reading may take so many times as long as an ordinary one before it is late
DONE = 0.3  # sounds: what having finished is worth


@dataclass(frozen=True)
class Terms:
    """float32 [R] each; `progress` is the part of the text that has been said, 0 to 1, and is no part of the reward."""

    match: Tensor
    pace: Tensor
    end: Tensor
    progress: Tensor

    @property
    def reward(self) -> Tensor:
        """Higher is better, 0 is flawless; float32 [R]."""
        return self.match + self.pace + self.end


def judge(forward: Tensor, lanes: Lanes, seconds: Tensor, finished: Tensor) -> Terms:
    """Terms of every row.

    Args:
        forward: float32 [R, W], after all that can be judged.
        seconds: float32 [R], of audio so far.
        finished: bool [R], nothing more will be said.
    """
    total = lanes.sounds.clamp(min=1).float()
    missing = (lanes.sounds[:, None] - sounds_said(lanes)).float()
    outlook = torch.where(finished[:, None] & lanes.exists, forward - WORST * missing, forward)
    place = outlook.argmax(1, keepdim=True)
    matched, left, due = (part.gather(1, place)[:, 0] for part in (forward, missing, lanes.due))
    late = (seconds - GRACE_SECONDS - SLOWEST * due).clamp(min=0.0)
    return Terms(
        match=matched / WORST / total,
        pace=-PACE * late / total,
        end=torch.where(finished, DONE - left, 0.0) / total,
        progress=(lanes.sounds.float() - left) / total,
    )
