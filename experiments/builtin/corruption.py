"""Damage to the codes that a network reads in training, so that it goes on sensibly after its own sampling errors.

Targets are never damaged. Two kinds: single codes, replaced by the same book's code of some other frame of the batch;
and whole phones, where a run of one symbol, however many frames it spans, is replaced by one wrong symbol, which is
what a sampling error looks like. It does not know which errors a given network makes.
"""

from __future__ import annotations

import torch
from torch import Tensor

PHONE_BOOKS = 4


def corrupt(rows: Tensor, spoken: Tensor, *, codes: float, phones: float, generator: torch.Generator) -> Tensor:
    """A damaged copy of rows int64 `[B, L, 1 + q]`; only rows marked in `spoken` bool `[B, L]` change.

    codes, phones: highest share of single codes and of phone runs that an utterance can lose; each draws its own share
    uniformly from 0 to that.
    """
    damaged = rows.clone()
    spare = rows[spoken][:, 1:]  # [frames of the batch, q]
    _corrupt_runs(damaged, spare, phones, generator)
    picked = spare[torch.randint(len(spare), rows.shape[:2], generator=generator)]
    share = codes * torch.rand(len(rows), 1, 1, generator=generator)
    hit = torch.rand(picked.shape, generator=generator) < share
    damaged[..., 1:] = torch.where(hit, picked, damaged[..., 1:])
    return torch.where(spoken.unsqueeze(-1), damaged, rows)


def _corrupt_runs(rows: Tensor, spare: Tensor, phones: float, generator: torch.Generator) -> None:
    batch, length, _ = rows.shape
    track = rows[..., 1 : 1 + PHONE_BOOKS].reshape(batch, -1)  # [B, 4 L] in the order of time
    run = torch.nn.functional.pad((track[:, 1:] != track[:, :-1]).cumsum(1), (1, 0))
    wrong = spare[torch.randint(len(spare), track.shape, generator=generator), 0]  # one candidate a run, some unused
    share = phones * torch.rand(batch, 1, generator=generator)
    hit = torch.rand(track.shape, generator=generator) < share
    replaced = torch.where(hit.gather(1, run), wrong.gather(1, run), track)
    rows[..., 1 : 1 + PHONE_BOOKS] = replaced.view(batch, length, PHONE_BOOKS)
