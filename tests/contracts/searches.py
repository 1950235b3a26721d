"""Laws 1, 2, 4, 5 and 6: what whole searches and single candidates promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from search import ChunkSearch, Sampling, SpeechRequest
from search import state as search_state
from search.config import WHOLE_UTTERANCE, SearchConfig
from search.protocols import Chunk
from search.state import BranchCache
from tests.contracts.subject import Subject, close_to, closing, frame_tolerance, holds


def search_settings(n: int = 6) -> st.SearchStrategy[dict[str, Any]]:
    """Some settings of a search, valid together."""
    return st.integers(1, n).flatmap(
        lambda size: st.fixed_dictionaries(
            {
                "n": st.just(size),
                "beam_width": st.integers(1, size),
                "chunk_frames": st.one_of(st.integers(1, 12), st.just(WHOLE_UTTERANCE)),
                "first_chunk_frames": st.sampled_from([None, 1, 3]),
                "max_lag_seconds": st.sampled_from([None, 0.0, 0.4]),
                "seed": st.integers(0, 5),
            }
        )
    )


def segments_are_the_audio(subject: Subject) -> None:
    """Law 1, and law 2 for the winner: segments in order, once each, are the audio, and the audio is its frames'."""
    codec, hop = subject.engine.codec, subject.engine.hop

    @holds(subject, settings=search_settings(), first=st.integers(0, 2), batch=st.integers(1, 3))
    def _(settings: dict[str, Any], first: int, batch: int) -> None:
        requests = [subject.requests[(first + k) % len(subject.requests)] for k in range(batch)]
        with subject.search.stream_batch(requests, max_seconds=subject.max_seconds, **settings) as stream:
            commits = list(stream)
        for index, result in enumerate(stream.results):
            mine = [commit for commit in commits if commit.index == index]
            start = 0
            for commit in mine:
                assert commit.start_frame == start, f"frames {start} to {commit.start_frame} were skipped or repeated"
                assert len(commit.segment) == commit.frames * hop, "a segment is not as long as its frames"
                start += commit.frames
            assert start == len(result.frames)
            heard = np.concatenate([commit.segment for commit in mine]) if mine else np.zeros(0, np.float32)
            assert np.array_equal(heard, result.audio), "the audio is not its segments"
            assert len(result.audio) == len(result.frames) * hop
            assert result.steps[-1]["committed_until_seconds"] == pytest.approx(result.seconds)
            if len(result.frames):
                offline = codec.decode(result.frames)
                close_to(torch.from_numpy(result.audio), offline, subject.pcm_tolerance, "audio and decoded frames")


def one_candidate_is_plain_sampling(subject: Subject) -> None:
    """Law 4: with n=1 the frames are those that the engine draws in one go, whatever the chunks and the scorer."""

    @holds(subject, which=st.integers(0, 2), chunk=st.integers(1, 12), first=st.sampled_from([None, 1, 5]))
    def _(which: int, chunk: int, first: int | None) -> None:
        request, engine = subject.requests[which], subject.engine
        limit = SearchConfig(max_seconds=subject.max_seconds).frame_limit(engine.budget(request), engine.frame_rate)
        with closing(engine.open([request], 1, subject.sampling)) as stream:
            plain = stream.advance(limit + 1)
        expected = plain.frames[0, : min(int(plain.lengths[0]), limit)]
        given_ = {name: getattr(subject.sampling, name) for name in [f.name for f in fields(Sampling)]}
        for scorer in (None, subject.scorer):
            result = ChunkSearch(subject.engine, scorer).generate(
                request, n=1, chunk_frames=chunk, first_chunk_frames=first, max_seconds=subject.max_seconds, **given_
            )
            close_to(result.frames, expected, frame_tolerance(subject, expected), "plain sampling and n=1")


def rows_are_nested_and_strangers(subject: Subject) -> None:
    """Law 5 for the engine: row i is the same among any number of candidates and in any batch."""

    @holds(
        subject, n=st.integers(1, 4), more=st.integers(0, 4), order=st.permutations(range(3)), chunk=st.integers(1, 12)
    )
    def _(n: int, more: int, order: list[int], chunk: int) -> None:
        def rows(which: list[int], size: int) -> dict[int, Chunk]:
            with closing(subject.engine.open([subject.requests[k] for k in which], size, subject.sampling)) as stream:
                got = stream.advance(chunk)
            assert got.frames.shape[0] == len(which) * size
            split = [part.unflatten(0, (len(which), size)) for part in (got.frames, got.lengths, got.finished)]
            return {k: Chunk(*(part[place] for part in split)) for place, k in enumerate(which)}

        together = rows(order, n + more)
        for which in order:
            alone = rows([which], n)[which]
            theirs = together[which]
            assert torch.equal(alone.lengths, theirs.lengths[:n]), "N or batch mates changed when a row ends"
            assert torch.equal(alone.finished, theirs.finished[:n])
            for row, length in enumerate(alone.lengths.tolist()):
                mine, other = alone.frames[row, :length], theirs.frames[row, :length]
                close_to(mine, other, 0.0, "N or batch mates changed a row")


def searches_are_strangers(subject: Subject) -> None:
    """Law 5 for the whole: a request comes out of a batch as it does alone, whatever the others do."""

    @holds(subject, settings=search_settings(4), order=st.permutations(range(3)), cut=st.integers(2, 3))
    def _(settings: dict[str, Any], order: list[int], cut: int) -> None:
        chosen = order[:cut]
        together = subject.generate([subject.requests[k] for k in chosen], **settings)
        for which, mine in zip(chosen, together, strict=True):
            alone = subject.generate([subject.requests[which]], **settings)[0]
            assert alone.status == mine.status, f"alone {alone.status}, in a batch {mine.status}"
            close_to(alone.frames, mine.frames, 0.0, "batch mates changed the frames")
            close_to(*(torch.from_numpy(r.audio) for r in (alone, mine)), subject.pcm_tolerance, "audio in a batch")
            assert [s["retained_rows"] for s in alone.steps] == [s["retained_rows"] for s in mine.steps]
            for ours, theirs in zip(alone.steps, mine.steps, strict=True):
                rewards = [torch.tensor([score["reward"] for score in step["scores"]]) for step in (ours, theirs)]
                close_to(*rewards, subject.score_tolerance, "rewards in a batch")


def each_prompt_is_read_once(subject: Subject) -> None:
    """Law 6: as many prefills as requests (twice as many with guidance), whatever N and the depth."""
    original = BranchCache.prefill

    def count(requests: Sequence[SpeechRequest], **settings: Any) -> int:
        groups = 0

        def prefill(cache: BranchCache, lengths: Tensor) -> search_state.Step:
            nonlocal groups
            groups += cache.groups
            return original(cache, lengths)

        own = getattr(subject.engine, "prefills", 0)
        with mock.patch.object(BranchCache, "prefill", prefill):
            subject.generate(requests, **settings)
        return groups + getattr(subject.engine, "prefills", 0) - own

    for requests in (subject.requests[:1], subject.requests[:3]):
        few = count(requests, n=1, chunk_frames=WHOLE_UTTERANCE)
        assert few in (len(requests), 2 * len(requests)), f"{few} prefills for {len(requests)} requests"
        many = count(requests, n=5, beam_width=2, chunk_frames=2)
        assert many == few, f"{few} prefills with n=1, {many} with n=5 and many steps"
