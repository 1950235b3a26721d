"""The rules of a frame, after the reference: what is drawn in which order, and what guidance and penalty do to logits.

One set of rules serves every stream. It does not know where uniforms come from, nor how state is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.moss.depth import DepthPass
from engine.moss.frames import FrameNetwork
from search.config import Sampling
from search.sampling import draw, penalise


def says_stop(logits: Tensor, bias: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """Logits float32 `[R, 2]` (continue, stop), the bias taken from the second, uniforms `[R]` -> bool `[R]`."""
    biased = torch.stack([logits[:, 0], logits[:, 1] - bias], 1)
    return draw(biased, uniform, temperature=sampling.text_temperature, top_k=0, top_p=1.0) == 1


def spoken_codes(
    network: FrameNetwork,
    depth: DepthPass,
    hidden: Tensor,
    finished: Tensor,
    seen: Sequence[Tensor],
    choose: Callable[[int, Tensor], Tensor],
    *,
    guidance: float,
    penalty: float,
) -> Tensor:
    """Draw the codes of a frame once its stop is decided, int64 `[R, q]`; pad in finished rows.

    Args:
        depth: a pass that has begun. Its rows are R, or 2 R under guidance: conditional ones first.
        hidden: what `depth.begin` gave.
        finished: bool `[R]`.
        seen: one bool `[R, V_k]` a codebook, which the new codes are marked in; empty without a penalty.
        choose: from the number of a codebook and its float32 logits `[R, V_k]` to int64 `[R]`.
    """
    sides = len(hidden) // len(finished)
    go_on, stop = network.stop_candidates()
    hidden = depth.decide(hidden, torch.where(finished, stop, go_on).repeat(sides))
    codes: list[Tensor] = []
    for book, head in enumerate(network.audio_lm_heads[: network.spoken_books]):
        if book:
            hidden = depth.step(codes[-1].repeat(sides))
        logits = head(hidden).float()
        if sides == 2:
            logits = guided(logits, guidance)
        if seen:
            logits = penalise(logits, seen[book], penalty)
        codes.append(choose(book, logits))
    for marks, code in zip(seen, codes, strict=False):
        marks.scatter_(1, code[:, None], True)
    return torch.stack(codes, 1).masked_fill_(finished[:, None], network.config.audio_pad)


def guided(logits: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance: `[2 * R, V] -> [R, V]`, uncond + scale * (cond - uncond)."""
    conditional, unconditional = logits.chunk(2)
    return unconditional + scale * (conditional - unconditional)


def new_rows(network: FrameNetwork, codes: Tensor, finished: Tensor, sides: int) -> Tensor:
    """What the global decoder reads of a frame's codes `[R, q]`: rows int64 `[sides * R, 1 + books]`."""
    config = network.config
    text = torch.where(finished, config.ids.pad, config.ids.assistant_slot)
    codes = torch.nn.functional.pad(codes, (0, config.books - codes.shape[1]), value=config.audio_pad)
    return torch.cat([text[:, None], codes], 1).repeat(sides, 1)
