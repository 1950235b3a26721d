"""Laws 2, 3 and 5 for codecs and scorers: random chunks, forks and commits, beside each row's own past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st
from torch import Tensor

from search import SpeechRequest
from search.protocols import Chunk, Codec, Scorer, Scores
from tests.contracts.subject import Subject, close_to, closing, holds, some_parents


@dataclass
class Truth:
    """One row's whole past: pieces of frames or of PCM, and how many frames it still has in its tail."""

    pieces: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)  # identities of its uncommitted frames
    finished: bool = False

    def child(self) -> Truth:
        return Truth(list(self.pieces), list(self.outputs), list(self.tail), self.finished)


@dataclass
class Walk:
    """Random chunks through rows that end at different times; `serial` tells frames of different rows apart."""

    data: st.DataObject
    pool: Tensor
    batch: int
    n: int
    serial: int = 0
    rows: list[list[Truth]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = [[Truth() for _ in range(self.n)] for _ in range(self.batch)]

    @property
    def flat(self) -> list[Truth]:
        return [row for group in self.rows for row in group]

    @property
    def done(self) -> bool:
        return all(row.finished for row in self.flat)

    def chunk(self) -> Chunk:
        draw, asked = self.data.draw, self.data.draw(st.integers(1, 12))
        lengths, frames = [], []
        for row in self.flat:
            ends = row.finished or draw(st.integers(0, 5)) == 0
            lengths.append(0 if row.finished else draw(st.integers(0, asked)) if ends else asked)
            row.finished = ends
        width = asked if not self.done else max(lengths)
        for row, length in zip(self.flat, lengths, strict=True):
            start = draw(st.integers(0, len(self.pool) - 1))
            piece = self.pool[(start + torch.arange(length)) % len(self.pool)]
            row.pieces.append(piece)
            row.tail += range(self.serial, self.serial + length)
            self.serial += length
            padding = piece.new_full((width - length, *piece.shape[1:]), 0)
            frames.append(torch.cat([piece, padding]))
        return Chunk(torch.stack(frames), torch.tensor(lengths), torch.tensor([row.finished for row in self.flat]))

    def fork(self) -> Tensor:
        parents = some_parents(self.data, self.batch, self.n)
        if self.data.draw(st.booleans()):
            parents = parents[:, :1].expand(-1, self.n).clone()
        self.rows = [[group[p].child() for p in row] for group, row in zip(self.rows, parents.tolist(), strict=True)]
        return parents

    def commit(self) -> Tensor:
        counts = []
        for group in self.rows:
            agreed = 0
            for column in zip(*(row.tail for row in group), strict=False):
                if len(set(column)) > 1:
                    break
                agreed += 1
            count = self.data.draw(st.sampled_from([agreed, agreed // 2]))
            for row in group:
                row.tail = row.tail[count:]
            counts.append(count)
        return torch.tensor(counts)


SIZES = {"batch": st.integers(1, 3), "n": st.integers(1, 4), "steps": st.integers(1, 5)}


def codec_streams_what_it_decodes(codec: Codec, pool: Tensor, subject: Subject | int, tolerance: float = 0.0) -> None:
    """Laws 2 and 3: whatever the chunks, forks, commits and batch mates, each row sounds like its own frames."""

    @holds(subject, data=st.data(), **SIZES)
    def _(data: st.DataObject, batch: int, n: int, steps: int) -> None:
        walk = Walk(data, pool, batch, n)
        with closing(codec.open(batch, n)) as stream:
            for _ in range(steps):
                if walk.done:
                    break
                chunk = walk.chunk()
                pcm = stream.decode(chunk)
                rows, frames = chunk.frames.shape[:2]
                assert pcm.shape == (rows, frames * codec.hop), f"{tuple(pcm.shape)} samples for {frames} frames"
                for row, sound, length in zip(walk.flat, pcm, chunk.lengths.tolist(), strict=True):
                    assert not bool(sound[length * codec.hop :].any()), "sound beyond a row's length"
                    row.outputs.append(sound[: length * codec.hop])
                stream.fork(walk.fork())
                stream.commit(walk.commit())
            for row in walk.flat:
                frames = torch.cat(row.pieces)
                if len(frames):
                    close_to(torch.cat(row.outputs), codec.decode(frames), tolerance, "streamed and offline audio")


def scorer_hears_only_the_row(
    scorer: Scorer, requests: Sequence[SpeechRequest], pcm: Tensor, rate: int, hop: int, subject: Subject | int,
    tolerance: float = 0.0,
) -> None:  # fmt: skip
    """Laws 3 and 5: a row is judged as it would be alone, whatever was forked, committed and heard beside it."""
    pool = pcm[: len(pcm) // hop * hop].view(-1, hop)

    @holds(subject, data=st.data(), **SIZES)
    def _(data: st.DataObject, batch: int, n: int, steps: int) -> None:
        walk = Walk(data, pool, batch, n)
        asked = [requests[g % len(requests)] for g in range(batch)]
        scores: Scores | None = None
        ends: list[list[bool]] = []
        with closing(scorer.open(asked, n, rate, hop)) as stream:
            for _ in range(steps):
                if walk.done:
                    break
                chunk = walk.chunk()
                ends.append([row.finished for row in walk.flat])
                scores = stream.score(chunk.frames.flatten(1), chunk.lengths * hop, chunk.finished)
                for row, finished in zip(walk.flat, chunk.finished, strict=True):
                    row.outputs.append(finished)
                last = [row.child() for row in walk.flat]
                stream.fork(walk.fork())
                stream.commit(walk.commit())
        assert scores is not None
        for place, row in enumerate(last):
            with closing(scorer.open([asked[place // n]], 1, rate, hop)) as alone:
                for piece, finished in zip(row.pieces, row.outputs, strict=True):
                    mine = alone.score(piece.reshape(1, -1), torch.tensor([piece.numel()]), finished[None])
                    alone.commit(torch.tensor([len(piece)]))
            close_to(mine.reward, scores.reward[place : place + 1], tolerance, "reward")
            for name, values in mine.heads.items():
                close_to(values, scores.heads[name][place : place + 1], tolerance, f"head {name!r}")
            assert len(scores.notes) == batch * n
