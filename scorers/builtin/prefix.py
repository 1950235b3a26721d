"""How well a row's audio so far matches a prefix of its text: the CTC forward recursion, one step at a time.

Graves et al., "Connectionist Temporal Classification" (2006), eq. 6 and 7, over the target's states, in its best-path
form (maximum for sum), with each step's log-probabilities relative to the step's best class (the free reading) and
bounded. A sum would forgive a missing sound the more, the more places it could have had. Knows nothing of words.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scorers.builtin.target import Lanes

WORST = 5.0
"""Nats that one step can cost at most: what one mis-said, missing or extra sound costs when the recogniser is sure."""

IMPOSSIBLE = -1e9


def open_lattice(lanes: Lanes) -> Tensor:
    """Before the first step: all weight on the first blank; float32 [R, W]."""
    forward = torch.full(lanes.emitted.shape, IMPOSSIBLE, device=lanes.emitted.device)
    forward[:, 0] = 0.0
    return forward


def advance(
    forward: Tensor, lanes: Lanes, log_probabilities: Tensor, real: Tensor, imagined: Tensor
) -> tuple[Tensor, Tensor]:
    """The forward variables after each row's `real` steps, and after its `imagined` steps (both int64 [R]).

    Args:
        forward: float32 [R, W], from before.
        log_probabilities: float32 [R, T, C].

    With `r_t(k) = max(log p_t(k) - max_j log p_t(j), -WORST)`, `a_t(s) = r_t(label of s) + max` of `a_{t-1}` at s,
    s - 1 and, over a blank between different sounds, s - 2. So `a` is never above 0, and exact however steps are cut.
    """
    best = log_probabilities.amax(-1, keepdim=True)
    relative = (log_probabilities - best).clamp(min=-WORST)
    rows, steps, _ = relative.shape
    emission = relative.gather(2, lanes.emitted[:, None].expand(rows, steps, -1))
    emission = emission.masked_fill(~lanes.exists[:, None], IMPOSSIBLE)
    kept = ahead = forward
    barred = torch.where(lanes.skips, 0.0, IMPOSSIBLE)
    gap = forward.new_full((rows, 2), IMPOSSIBLE)
    for step in range(int(imagined.max())):
        line = torch.cat([gap, ahead], 1)
        entered = torch.maximum(torch.maximum(ahead, line[:, 1:-1]), line[:, :-2] + barred)
        moved = (entered + emission[:, step]).clamp(min=IMPOSSIBLE)
        ahead = torch.where((step < imagined)[:, None], moved, ahead)
        kept = torch.where((step < real)[:, None], moved, kept)
    return kept, ahead


def sounds_said(lanes: Lanes) -> Tensor:
    """Sounds of the text that each state has behind it, int64 [W]: state s has said `(s + 1) // 2`."""
    return (torch.arange(lanes.emitted.shape[1], device=lanes.emitted.device) + 1) // 2
