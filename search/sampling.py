"""From logits and one uniform number to a code. Knows nothing of books, rows or where the uniform came from."""

from __future__ import annotations

import torch
from torch import Tensor

from search.config import Sampling


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Repetition penalty (Keskar et al., CTRL, 2019).

    Logits of codes seen before are divided by `penalty`, negative ones multiplied.
    `logits` float32 [..., V], `seen` bool [..., V].
    """
    if penalty == 1.0:
        return logits
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def draw(logits: Tensor, uniform: Tensor, *, temperature: float, top_k: int, top_p: float) -> Tensor:
    """One code per row: float32 logits [..., V] and uniforms [...] in [0, 1) to int64 [...].

    The order of rules is that of the public samplers: temperature, top-k (ties with the k-th value stay), top-p over
    what is left (the code that crosses p stays), then the inverse of the cumulative distribution in order of falling
    probability, equal logits by rising id. Temperature 0 takes the likeliest code, the lowest id among equals.
    """
    if temperature == 0.0:
        return logits.argmax(-1)
    probabilities, ids = filtered(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    cumulative = probabilities.cumsum(-1)
    threshold = uniform.unsqueeze(-1) * cumulative[..., -1:]
    # Rounding can put the threshold on the last step: the clamp keeps it among codes with probability.
    last = (probabilities > 0).sum(-1, keepdim=True) - 1
    place = (cumulative <= threshold).sum(-1, keepdim=True).minimum(last)
    return ids.gather(-1, place).squeeze(-1)


def filtered(logits: Tensor, *, temperature: float, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """The distribution that `draw` inverts: probabilities in falling order and the ids they belong to, [..., V] each.

    Probabilities of removed codes are 0; the others sum to 1.
    """
    ranked, ids = (logits / temperature).sort(dim=-1, descending=True, stable=True)
    if 0 < top_k < ranked.shape[-1]:
        ranked = ranked.masked_fill(ranked < ranked[..., top_k - 1 : top_k], -torch.inf)
    if top_p < 1.0:
        beyond = ranked.softmax(-1).cumsum(-1)[..., :-1] > top_p
        ranked[..., 1:].masked_fill_(beyond, -torch.inf)
    return ranked.softmax(-1), ids


def draw_code(logits: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """`draw` with the audio settings of `sampling` (the penalty needs history and is the engine's to apply first)."""
    return draw(logits, uniform, temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)
