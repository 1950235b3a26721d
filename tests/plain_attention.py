"""A cache beside plain lists of all that its rows were fed, and attention written out. Knows no network."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from search.state import BranchCache

HEADS, KV_HEADS, WIDTH, LAYERS = 4, 2, 8, 2


def plain_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """One row: q [H_q, L, d], k and v [H_kv, L, d], every position seeing its past."""
    length, repeat = q.shape[1], q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)
    scores = q.double() @ k.double().transpose(1, 2) * WIDTH**-0.5
    at = torch.arange(length)
    hidden = at[None] > at[:, None]
    if window is not None:
        hidden |= at[None] <= at[:, None] - window
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v.double()).float()


class Row:
    """What one row has been fed, position by position, and what attention made of it: lists of [LAYERS, heads, d]."""

    def __init__(self) -> None:
        self.q: list[Tensor] = []
        self.k: list[Tensor] = []
        self.v: list[Tensor] = []
        self.out: list[Tensor] = []

    def copy(self) -> "Row":
        other = Row()
        other.q, other.k, other.v, other.out = list(self.q), list(self.k), list(self.v), list(self.out)
        return other

    def expected(self, window: int | None) -> Tensor:
        layers = [
            plain_attention(*(torch.stack(part, 2)[layer] for part in (self.q, self.k, self.v)), window)
            for layer in range(LAYERS)
        ]
        return torch.stack(layers)  # [LAYERS, H_q, L, d]


class Model:
    """A cache beside plain lists of all that its rows were fed."""

    def __init__(self, groups: int, n: int, window: int | None, seed: int = 0) -> None:
        self.cache = BranchCache(layers=LAYERS, groups=groups, n=n, kv_heads=KV_HEADS, head_dim=WIDTH, window=window)
        self.rows = [[Row() for _ in range(n)] for _ in range(groups)]
        self.groups, self.n, self.window = groups, n, window
        self.seed = seed

    def tokens(self, group: int, row: int, position: int, salt: int) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of one position, [LAYERS, heads, d]: of the row's own making, whatever the batch is."""
        generator = torch.Generator().manual_seed(hash((self.seed, group, row, position, salt)) % (1 << 62))
        return tuple(torch.randn(LAYERS, heads, WIDTH, generator=generator) for heads in (HEADS, KV_HEADS, KV_HEADS))  # type: ignore[return-value]

    def prefill(self, lengths: list[int]) -> None:
        step = self.cache.prefill(torch.tensor(lengths))
        longest = max(lengths)
        assert step.positions.tolist() == [list(range(longest))] * self.groups
        fed = [[self.tokens(group, -1, at, 0) for at in range(longest)] for group in range(self.groups)]
        q, k, v = (torch.stack([torch.stack([t[part] for t in row], 2) for row in fed], 1) for part in range(3))
        outs = torch.stack([step.attend(layer, q[layer], k[layer], v[layer]) for layer in range(LAYERS)])
        for group, length in enumerate(lengths):
            for row in self.rows[group]:
                for at in range(length):
                    row.q.append(fed[group][at][0])
                    row.k.append(fed[group][at][1])
                    row.v.append(fed[group][at][2])
                    row.out.append(outs[:, group, :, at])

    def extend(self, frames: int, active: list[bool] | None = None, salt: int = 0) -> None:
        grows = active or [True] * self.groups
        starts = [c + p for c, p in zip(self.cache.committed, self.cache.pending, strict=True)]
        step = self.cache.extend(frames, None if active is None else torch.tensor(active))
        fed = [
            [[self.tokens(g, i, starts[g] + t, salt) for t in range(frames)] for i in range(self.n)]
            for g in range(self.groups)
        ]
        assert step.positions.tolist() == [[list(range(s, s + frames))] * self.n for s in starts]
        q, k, v = (
            torch.stack([torch.stack([torch.stack([t[part] for t in row], 2) for row in group], 1) for group in fed], 1)
            for part in range(3)
        )
        outs = torch.stack([step.attend(layer, q[layer], k[layer], v[layer]) for layer in range(LAYERS)])
        for group in (g for g in range(self.groups) if grows[g]):
            for i, row in enumerate(self.rows[group]):
                for t in range(frames):
                    row.q.append(fed[group][i][t][0])
                    row.k.append(fed[group][i][t][1])
                    row.v.append(fed[group][i][t][2])
                    row.out.append(outs[:, group, i, :, t])

    def fork(self, parents: list[list[int]]) -> None:
        self.cache.fork(torch.tensor(parents))
        self.rows = [[group[p].copy() for p in row] for group, row in zip(self.rows, parents, strict=True)]

    def commit(self, frames: list[int]) -> None:
        self.cache.commit(torch.tensor(frames))

    def check(self) -> None:
        for group in self.rows:
            for row in group:
                if row.out:
                    torch.testing.assert_close(torch.stack(row.out, 2), row.expected(self.window), rtol=1e-5, atol=1e-5)


def walk(data: st.DataObject, model: Model, steps: int) -> None:
    """Random extends, forks and commits, as a search makes them."""
    groups, n = model.groups, model.n
    for step in range(steps):
        active = data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups))
        model.extend(data.draw(st.integers(1, 9)), None if all(active) else active, step)
        parents = [data.draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)) for _ in range(groups)]
        if data.draw(st.booleans()):
            model.fork(parents)
        together = [[row[0]] * n for row in parents]
        if data.draw(st.booleans()):
            model.fork(together)
            model.commit([data.draw(st.integers(0, pending)) for pending in model.cache.pending])
