"""The training losses of the language model, computed through the network that speaks at run time.

Cross-entropy of every book and of the stop decision; attention guided to the symbols that are being spoken (minus the
log of the mass that one head puts on them); and cross-entropy of the phone tokens from the global hidden state itself,
with a head that is thrown away. It does not know about optimisers, nor where batches come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.moss.network import MossNetwork
from experiments.builtin.corruption import PHONE_BOOKS
from experiments.builtin.token_data import Batch

GUIDED_LAYERS = (1, 2, 3)
GUIDED_HEAD = 0


@dataclass(frozen=True)
class Losses:
    """Means in nats. `books` float32 `[q]`; `attention` `[guided layers]`; `stop` and `phones` are scalars."""

    books: Tensor
    stop: Tensor
    attention: Tensor
    phones: Tensor

    def total(self, book_weights: Tensor, guide: float) -> Tensor:
        """What is minimised; `guide` weighs the attention term."""
        weighted = (self.books * book_weights).sum() / book_weights.sum()
        return weighted + 0.5 * self.stop + guide * self.attention.mean() + 0.1 * self.phones

    def flat(self) -> Tensor:
        """All values, detached, float32 `[q + 1 + guided layers + 1]`, in the order of the fields."""
        return torch.cat([self.books, self.stop[None], self.attention, self.phones[None]]).detach()


def _attention(query: Tensor, key: Tensor, value: Tensor, future: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention `[B, H, T, d]` and the masked scores `[B, H, T, T]`; `future` is `[T, T]`, -inf or 0.

    Products are written out because the fused kernel's backward pass is ten times slower on a CPU at these lengths.
    """
    batch, heads, length, width = query.shape
    keys, values = (part.repeat_interleave(heads // part.shape[1], 1).flatten(0, 1) for part in (key, value))
    scores = torch.baddbmm(future.to(query.dtype), query.flatten(0, 1), keys.transpose(1, 2), alpha=width**-0.5)
    mixed = torch.bmm(scores.float().softmax(-1).to(values.dtype), values)
    return mixed.view(query.shape), scores.view(batch, heads, length, length)


def _future(length: int) -> Tensor:
    return torch.full((length, length), -torch.inf).triu(1)


class GuidedAttention:
    """Causal attention that notes, in some layers, how much of one head's attention lies on the aligned symbols.

    `losses` has minus the log of that mass for every guided layer that has run, averaged over the guided rows.
    """

    def __init__(self, batch: Batch) -> None:
        self._future = _future(batch.rows.shape[1])
        place = torch.arange(batch.rows.shape[1])
        self._guided = batch.last >= batch.first
        inside = (place >= batch.first.unsqueeze(-1)) & (place <= batch.last.unsqueeze(-1))
        self._elsewhere = ~inside[self._guided]
        self.losses: list[Tensor] = []

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mixed, scores = _attention(query, key, value, self._future)
        if layer in GUIDED_LAYERS:
            guided = scores[:, GUIDED_HEAD][self._guided].float()
            aligned = guided.masked_fill(self._elsewhere, -torch.inf)
            self.losses.append((guided.logsumexp(-1) - aligned.logsumexp(-1)).mean())
        return mixed


def depth_hidden(network: MossNetwork, hidden: Tensor, codes: Tensor) -> Tensor:
    """`MossNetwork.depth_hidden` with the attention of this module: hidden `[M, H]`, codes `[M, q]` -> `[M, q, H]`."""
    embedded = [embedding(codes[:, book]) for book, embedding in enumerate(network.audio_embeddings[:-1])]
    inputs, future = torch.stack([hidden, *embedded], 1), _future(codes.shape[1])

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        del layer
        return _attention(query, key, value, future)[0]

    out: Tensor = network.local_transformer(inputs, 0, attend)
    return out


def language_losses(
    network: MossNetwork, phone_head: nn.Linear, batch: Batch, rows: Tensor, kept: Tensor | None = None
) -> Losses:
    """Losses of a batch.

    rows: what the network reads, `batch.rows` or a damaged copy. kept: bool `[decisions]`, those that the depth decoder
    is trained on (the stop decisions should be among them); None is all. phone_head: `[4 V_phone, H]`.
    """
    attend = GuidedAttention(batch)
    positions = torch.arange(rows.shape[1]).expand(rows.shape[:2])
    hidden = network.transformer(network.embed(rows), positions, attend)[batch.decides]  # [decisions, H]
    targets, stops = batch.targets[batch.decides], batch.stops[batch.decides]
    phones = _phone_loss(phone_head, hidden[~stops], targets[~stops, :PHONE_BOOKS])
    if kept is not None:
        hidden, targets, stops = hidden[kept], targets[kept], stops[kept]
    depth = depth_hidden(network, hidden, targets)
    stop = F.cross_entropy(network.stop_logits(depth).float(), stops.long())
    logits = network.audio_logits(depth[~stops])
    books = [F.cross_entropy(one.float(), targets[~stops, book]) for book, one in enumerate(logits)]
    return Losses(torch.stack(books), stop, torch.stack(attend.losses), phones)


def _phone_loss(head: nn.Linear, hidden: Tensor, phones: Tensor) -> Tensor:
    logits = head(hidden).float().view(-1, head.out_features // PHONE_BOOKS)
    return F.cross_entropy(logits, phones.reshape(-1))
