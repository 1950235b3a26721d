"""Forkable state: the key/value cache that stores a shared prefix once, and the walk that forks everything else.

Knows nothing about what the keys stand for: text rows, codec frames and audio features are all positions here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from search.products import ALIGN, aligned, product, row_by_row, side_by_side, weighted_sum

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention as an argument of a network.

`(layer, q [*, H_q, T, d], k [*, H_kv, T, d], v [*, H_kv, T, d]) -> [*, H_q, T, d]`
"""


@dataclass(frozen=True)
class Step:
    """New positions of a cache: hand `positions` and `attend` to a network, once."""

    positions: Tensor
    attend: Attend


class BranchCache:
    """Keys and values of G groups of N rows: a trunk stored once a group, and a private tail for every row.

    A group is a request, or one side of a request under classifier-free guidance. Attention reads the trunk once for
    all N rows, in one batched product, and each row's tail, with one softmax over both.

    Shapes: trunk [layers, 2, G, H_kv, L, d], tail [layers, 2, G, N, H_kv, T, d]; axis 1 is keys, then values.
    Groups may differ in length: what lies beyond a group's length is masked and never read into a result.

    Args:
        window: a query sees the last `window` positions, itself among them; None is all. Entries that no later query
            can see are dropped: of trunks at `commit`, of tails once they are twice as long as the window.
        scale: of the scores; None is `head_dim ** -0.5`.
    """

    def __init__(
        self,
        *,
        layers: int,
        groups: int,
        n: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        window: int | None = None,
        scale: float | None = None,
    ) -> None:
        self.groups, self.n, self.window = groups, n, window
        self._scale = head_dim**-0.5 if scale is None else scale
        self._trunk = torch.zeros(layers, 2, groups, kv_heads, ALIGN, head_dim, dtype=dtype, device=device)
        self._tail = torch.zeros(layers, 2, groups, n, kv_heads, ALIGN, head_dim, dtype=dtype, device=device)
        self._trunk_length, self._tail_length = [0] * groups, [0] * groups
        self._dropped = [0] * groups  # trunk entries that the window has left behind
        self._tail_dropped = [0] * groups  # and those of tails, where nothing of the trunk is left

    @property
    def committed(self) -> list[int]:
        """Positions in each group's trunk, those that the window dropped included."""
        return [length + gone for length, gone in zip(self._trunk_length, self._dropped, strict=True)]

    @property
    def pending(self) -> list[int]:
        """Positions in each group's tail, those that the window dropped included."""
        return [length + gone for length, gone in zip(self._tail_length, self._tail_dropped, strict=True)]

    def prefill(self, lengths: Tensor) -> Step:
        """Read right-padded prompts [G, L] into the trunk, once for all rows.

        `lengths` int64 [G]; the step's `*` is [G].
        """
        assert not any(self._trunk_length + self._tail_length), "prefill comes first, and once"
        self._trunk_length = [int(length) for length in lengths.tolist()]
        longest = max(self._trunk_length)
        read = aligned(longest)
        self._trunk = _grown(self._trunk, 4, read)
        place = torch.arange(read, device=self._trunk.device)
        hidden = self._hidden(place[:longest, None], place[None, :])  # [L, read]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            groups, _, length, width = q.shape
            self._trunk[layer, 0, :, :, :length] = k
            self._trunk[layer, 1, :, :, :length] = v
            keys, values = self._trunk[layer, 0, :, :, None, :read], self._trunk[layer, 1, :, :, None, :read]
            queries = q.reshape(groups, k.shape[1], -1, length, width)  # [G, H_kv, rep, L, d]
            scores = product(queries, keys.transpose(-1, -2)).float() * self._scale
            weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1).to(v.dtype)
            return weighted_sum(weights, values).reshape(q.shape)

        return Step(place[:longest].expand(self.groups, -1), attend)

    def extend(self, frames: int, active: Tensor | None = None) -> Step:
        """Add `frames` positions to every row's tail; the step's `*` is [G, N].

        Groups that are False in `active` (bool [G]) do not grow: what is computed for them is thrown away.
        """
        self._forget()
        start = torch.tensor([self.committed, self.pending], device=self._tail.device).sum(0)  # [G]
        before = list(self._tail_length)
        grows = [True] * self.groups if active is None else active.tolist()
        read = aligned(max(before) + frames)
        self._tail = _grown(self._tail, 5, read)
        self._tail_length = [old + frames * grow for old, grow in zip(before, grows, strict=True)]
        device = self._tail.device
        offset = torch.tensor(before, device=device)  # [G]
        fresh = torch.arange(frames, device=device)
        positions = (start[:, None] + fresh)[:, None].expand(-1, self.n, -1)  # [G, N, T]
        level = len(set(before)) == 1
        slots = (offset[:, None] + fresh)[:, None, None, :, None]  # [G, 1, 1, T, 1]
        tail_place = torch.arange(read, device=device)[None, None]  # [1, 1, T_read]
        tail_hidden = self._hidden((offset[:, None] + fresh)[..., None], tail_place)  # [G, T, T_read]
        trunk_read = aligned(max(self._trunk_length))
        trunk_hidden = self._trunk_hidden(trunk_read, positions[:, 0])
        hidden = torch.cat([tail_hidden, trunk_hidden], -1)[:, None, None, None]  # [G, 1, 1, 1, T, read]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            for part, value in ((self._tail[layer, 0], k), (self._tail[layer, 1], v)):
                if level:
                    part[:, :, :, before[0] : before[0] + frames] = value
                else:
                    part.scatter_(3, slots.expand_as(value), value)
            return self._attended(layer, q, hidden, read, trunk_read)

        return Step(positions, attend)

    def _attended(self, layer: int, q: Tensor, hidden: Tensor, read: int, trunk_read: int) -> Tensor:
        """What queries [G, N, H_q, T, d] make of the first `read` entries of tails and `trunk_read` of trunks.

        `hidden` bool [G, 1, 1, 1, T, read + trunk_read] tells which of them a query does not see.
        """
        groups, n, _, new, width = q.shape
        keys, values = self._tail[layer, 0, :, :, :, :read], self._tail[layer, 1, :, :, :, :read]
        trunk_keys, trunk_values = self._trunk[layer, 0, :, :, :trunk_read], self._trunk[layer, 1, :, :, :trunk_read]
        kv_heads = keys.shape[2]
        queries = q.reshape(groups, n, kv_heads, -1, width)  # [G, N, H_kv, rep * T, d]
        shared = side_by_side(queries)  # [G, H_kv, N * rep * T, d]
        scores = torch.cat(
            [queries @ keys.transpose(-1, -2), row_by_row(product(shared, trunk_keys.transpose(-1, -2)), n)], -1
        )
        scores = scores.float().mul_(self._scale).view(groups, n, kv_heads, -1, new, read + trunk_read)
        weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1).to(values.dtype).flatten(3, 4)
        out = weighted_sum(weights[..., :read], values)
        if trunk_read:
            out = out + row_by_row(weighted_sum(side_by_side(weights[..., read:]), trunk_values), n)
        return out.reshape(q.shape)

    def reserve(self, trunk: int, tail: int) -> None:
        """Make room for so many positions: until there are more, buffers stay where they are."""
        self._trunk = _grown(self._trunk, 4, trunk)
        self._tail = _grown(self._tail, 5, tail)

    def fork(self, parents: Tensor) -> None:
        """Row `(g, i)` goes on with the tail of old row `(g, parents[g, i])`; int64 [G, N]. Trunks are not touched."""
        used = max(self._tail_length)
        if used == 0 or is_identity(parents):
            return
        index = row_index(parents).to(self._tail.device)
        tail = self._tail[..., :used, :]
        tail.copy_(tail.flatten(2, 3).index_select(2, index).view_as(tail))

    def commit(self, frames: Tensor) -> None:
        """Move the oldest `frames[g]` tail positions, now equal in all rows of group g, to the trunk; int64 [G]."""
        counts = [int(count) for count in frames.tolist()]
        for group, (count, pending) in enumerate(zip(counts, self.pending, strict=True)):
            if not 0 <= count <= pending:
                raise ValueError(f"commit: group {group} has {pending} uncommitted positions; {count} were asked for")
        for group, gone in enumerate(self._tail_dropped):
            forgotten = min(counts[group], gone)
            self._tail_dropped[group] -= forgotten
            self._dropped[group] += forgotten
            counts[group] -= forgotten
        self._trunk = _grown(self._trunk, 4, max(map(sum, zip(self._trunk_length, counts, strict=True))))
        for group, count in enumerate(counts):
            if count:
                self._move(group, count)

    def _forget(self) -> None:
        """Keep of long tails what the next query sees; their trunks lie before that, and are out of sight too."""
        for group, length in enumerate(self._tail_length):
            if self.window is not None and length >= 2 * self.window:
                kept, tail = self.window - 1, self._tail[:, :, group]
                tail[..., :kept, :] = tail[..., length - kept : length, :]
                self._tail_length[group] = kept
                self._tail_dropped[group] += length - kept
                self._dropped[group] += self._trunk_length[group]
                self._trunk_length[group] = 0

    def _move(self, group: int, count: int) -> None:
        old, rest = self._trunk_length[group], self._tail_length[group] - count
        trunk, tail = self._trunk[:, :, group], self._tail[:, :, group]
        trunk[..., old : old + count, :] = tail[:, :, 0, :, :count]
        if rest:
            tail[..., :rest, :] = tail[..., count : count + rest, :].clone()
        self._tail_length[group] = rest
        kept = old + count if self.window is None else min(old + count, self.window - 1)
        gone = old + count - kept
        if gone:
            trunk[..., :kept, :] = trunk[..., gone : gone + kept, :].clone()
        self._trunk_length[group] = kept
        self._dropped[group] += gone

    def _hidden(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a key lies in the future of a query, or has left its window."""
        hidden = key > query
        return hidden if self.window is None else hidden | (key <= query - self.window)

    def _trunk_hidden(self, read: int, positions: Tensor) -> Tensor:
        """[G, T, read] from the queries' positions [G, T]: trunk entries that are not there, or out of the window."""
        device = self._trunk.device
        place = torch.arange(read, device=device)[None, None]
        hidden = (place >= torch.tensor(self._trunk_length, device=device)[:, None, None]).expand(
            -1, positions.shape[1], -1
        )
        if self.window is None:
            return hidden
        absolute = place + torch.tensor(self._dropped, device=device)[:, None, None]
        return hidden | (absolute <= positions[..., None] - self.window)


def shared() -> Any:
    """A dataclass field that all rows have in common: `fork_rows` leaves it alone."""
    return field(metadata={"shared": True})


def fork_rows(state: object, parents: Tensor) -> None:
    """Fork every tensor and cache of a state dataclass in place; `parents` int64 [B, N].

    Tensors have rows on axis 0 (or twice as many: two guidance sides, side-major). Caches fork themselves,
    dataclasses, lists and dicts are walked, None is nothing, fields marked `shared()` are left alone.

    Raises:
        TypeError: a field holds something else. A state that cannot be forked must not be carried on in silence.
    """
    if not is_identity(parents):
        _forked(state, parents, row_index(parents), type(state).__name__)


def _forked(value: Any, parents: Tensor, index: Tensor, where: str) -> Any:
    match value:
        case Tensor():
            rows = index.numel()
            sides, odd = divmod(value.shape[0] if value.ndim else 0, rows)
            if odd or not 1 <= sides <= 2:
                raise TypeError(
                    f"{where}: shape {tuple(value.shape)} does not have {rows} rows on axis 0; it cannot be forked"
                )
            tiled = torch.cat([index + side * rows for side in range(sides)])
            return value.index_select(0, tiled.to(value.device))
        case BranchCache():
            value.fork(parents.repeat(value.groups // parents.shape[0], 1))
        case list():
            value[:] = [_forked(item, parents, index, f"{where}[{i}]") for i, item in enumerate(value)]
        case dict():
            value.update({key: _forked(item, parents, index, f"{where}[{key!r}]") for key, item in value.items()})
        case None:
            pass
        case _ if is_dataclass(value) and not isinstance(value, type):
            for part in fields(value):
                if not part.metadata.get("shared"):
                    name = f"{where}.{part.name}"
                    setattr(value, part.name, _forked(getattr(value, part.name), parents, index, name))
        case _:
            raise TypeError(
                f"{where}: a {type(value).__name__} cannot be forked; use tensors with rows on axis 0, or shared()"
            )
    return value


def is_identity(parents: Tensor) -> bool:
    """Whether every row goes on as itself."""
    return bool((parents == torch.arange(parents.shape[1], device=parents.device)).all())


def row_index(parents: Tensor) -> Tensor:
    """Flat row numbers [B * N] of parents [B, N]."""
    batch, n = parents.shape
    return (parents + torch.arange(batch, device=parents.device)[:, None] * n).flatten()


def _grown(buffer: Tensor, axis: int, needed: int) -> Tensor:
    """The buffer, or a copy at least twice as long with zeros at the end, with room for `needed` entries on `axis`."""
    room = buffer.shape[axis]
    if needed <= room:
        return buffer
    shape = list(buffer.shape)
    shape[axis] = max(aligned(needed), 2 * room)
    bigger = buffer.new_zeros(shape)
    bigger.narrow(axis, 0, room).copy_(buffer)
    return bigger
