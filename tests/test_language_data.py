"""Batches that the language model learns from, damage to them, and the losses' own arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.moss.layers import causal_attention
from experiments.builtin.corruption import PHONE_BOOKS, corrupt
from experiments.builtin.language_loss import GuidedAttention, depth_hidden
from experiments.builtin.muon import orthogonalised
from experiments.builtin.own_samples import spoken
from experiments.builtin.token_data import (
    Batches,
    Utterance,
    aligned_symbols,
    collate,
    load_utterances,
    save_utterances,
)
from experiments.builtin.train_language_model import CONFIG, Settings, Training, new_network
from experiments.builtin.whole import written_whole

IDS, PAD = CONFIG.ids, CONFIG.audio_pad


def utterance(frames: int, symbols: int, seed: int = 0) -> Utterance:
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, frames) for size in CONFIG.codebook_sizes], 1)
    ends = np.linspace(0, frames * 8, symbols + 1)[1:]
    return Utterance(codes.astype(np.int16), rng.integers(0, 179, symbols).astype(np.int16), ends.astype(np.float32))


def test_a_token_file_gives_back_what_was_stored(tmp_path: Path) -> None:
    stored = [utterance(5, 3), utterance(9, 7, seed=1)]
    save_utterances(stored, tmp_path / "tokens.safetensors")
    for old, new in zip(stored, load_utterances(tmp_path / "tokens.safetensors"), strict=True):
        assert np.array_equal(old.codes, new.codes)
        assert np.array_equal(old.symbols, new.symbols)
        assert np.array_equal(old.ends, new.ends)


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere"):
        load_utterances(tmp_path / "nowhere.safetensors")


def test_symbols_are_aligned_one_frame_ahead() -> None:
    # Symbols end at hops 4, 8, 12, 24; frame t announces the symbols of hops 8 (t + 1) to 8 (t + 2).
    first, last = aligned_symbols(np.asarray([4, 8, 12, 24], np.float32), 3)
    assert first.tolist() == [2, 3, 3, 3]
    assert last.tolist() == [3, 3, 3, 3]


def test_each_deciding_row_has_the_next_frame_as_its_target() -> None:
    one, two = utterance(4, 3), utterance(2, 6, seed=1)
    batch = collate([one, two], [False, False], IDS, PAD)
    assert batch.rows[0, :6, 0].tolist() == [IDS.im_start, *one.symbols.tolist(), IDS.im_end, IDS.audio_start]
    assert (batch.rows[0, :6, 1:] == PAD).all()
    assert torch.equal(batch.rows[0, 6:10, 1:], torch.from_numpy(one.codes.astype(np.int64)))
    assert torch.equal(batch.targets[0, 5:9], torch.from_numpy(one.codes.astype(np.int64)))
    assert batch.decides.sum(1).tolist() == [5, 3]
    assert batch.stops.nonzero().tolist() == [[0, 9], [1, 10]]
    assert (batch.rows[0, 10:, 0] == IDS.pad).all()


def test_an_unconditional_prompt_has_no_symbols_and_no_alignment() -> None:
    batch = collate([utterance(4, 3)], [True], IDS, PAD)
    assert batch.rows[0, :3, 0].tolist() == [IDS.im_start, IDS.im_end, IDS.audio_start]
    assert (batch.last < batch.first).all()


def test_an_epoch_has_every_utterance_once_and_keeps_to_the_size() -> None:
    utterances = [utterance(3 + i % 11, 2 + i % 5, seed=i) for i in range(60)]
    batches = Batches(utterances, IDS, PAD, rows=100, unconditional=0.0)
    found = list(batches.epoch(0, seed=1))
    assert sum(int(batch.spoken.sum()) for batch in found) == sum(len(u.codes) for u in utterances)
    assert max(batch.rows.shape[0] * batch.rows.shape[1] for batch in found) <= 100
    again = list(batches.epoch(0, seed=1))
    assert all(torch.equal(a.rows, b.rows) for a, b in zip(found, again, strict=True))
    other = list(batches.epoch(1, seed=1))
    assert any(not torch.equal(a.rows, b.rows) for a, b in zip(found, other, strict=False))


def test_damage_replaces_whole_phone_runs_and_nothing_that_is_not_spoken() -> None:
    codes = np.zeros((40, CONFIG.books), np.int16)
    codes[:, :PHONE_BOOKS] = np.repeat(np.arange(20), 8).reshape(40, PHONE_BOOKS)
    batch = collate([Utterance(codes, np.asarray([1], np.int16), np.asarray([320], np.float32))], [False], IDS, PAD)
    generator = torch.Generator().manual_seed(0)
    damaged = corrupt(batch.rows, batch.spoken, codes=0.0, phones=1.0, generator=generator)
    assert torch.equal(damaged[~batch.spoken], batch.rows[~batch.spoken])
    track = damaged[batch.spoken][:, 1 : 1 + PHONE_BOOKS].reshape(20, 8)
    assert (track == track[:, :1]).all(), "a run changes as a whole"
    changed = (track[:, 0] != torch.arange(20)).sum()
    assert 0 < changed < 20


def test_the_guided_loss_is_minus_the_log_of_the_mass_on_the_aligned_symbols() -> None:
    batch = collate([utterance(6, 4), utterance(3, 5, seed=1)], [False, False], IDS, PAD)
    size, length = batch.rows.shape[:2]
    torch.manual_seed(0)
    query, key, value = torch.randn(3, size, 4, length, 16)
    attend = GuidedAttention(batch)
    mixed = attend(1, query, key, value)
    assert torch.allclose(mixed, causal_attention(1, query, key, value), atol=1e-5)
    weights = (query[:, 0] @ key[:, 0].mT / 4.0).masked_fill(torch.ones(length, length).triu(1) > 0, -torch.inf)
    found = []
    for b, t in batch.decides.nonzero().tolist():
        inside = slice(int(batch.first[b, t]), int(batch.last[b, t]) + 1)
        found.append(-weights[b, t].softmax(-1)[inside].sum().log())
    assert torch.allclose(attend.losses[0], torch.stack(found).mean(), atol=1e-5)


def test_the_depth_decoder_in_training_is_that_of_the_product() -> None:
    network = new_network(0)
    codes = torch.stack([torch.randint(0, size, (6,)) for size in CONFIG.codebook_sizes], 1)
    hidden = torch.randn(6, CONFIG.backbone.hidden)
    with torch.no_grad():
        assert torch.allclose(depth_hidden(network, hidden, codes), network.depth_hidden(hidden, codes), atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 16, 40), (2, 40, 16)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalised(torch.randn(shape), iterations=8))
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_own_samples_are_labelled_with_the_runs_of_their_phone_tokens() -> None:
    codes = np.zeros((3, CONFIG.books), np.int16)
    codes[:, :PHONE_BOOKS] = [[0, 7, 7, 7], [7, 0, 5, 5], [9, 9, 9, 9]]  # the last frame's would sound after the end
    found = spoken(codes)
    assert found.symbols.tolist() == [0, 7, 0, 5]
    assert found.ends.tolist() == [10.0, 18.0, 20.0, 24.0]


def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    settings = Settings(minutes=1.0, rate=1e-3, rows=100, seed=0)
    backbone = replace(CONFIG.backbone, hidden=32, head_dim=8, feed_forward=48)
    small = replace(CONFIG, backbone=backbone, local=replace(CONFIG.local, feed_forward=64))
    batch = collate([utterance(6, 4), utterance(5, 5, seed=1)], [False, True], IDS, PAD)
    first = Training(settings, small)
    first.step(batch)
    first.save(tmp_path)
    second = Training(settings, small)
    second.resume(tmp_path)
    first.seconds = second.seconds  # the rate follows the clock
    assert torch.equal(first.step(batch), second.step(batch))
    second.seconds = first.seconds
    assert torch.equal(first.step(batch), second.step(batch)), "moments and averages came along"
    for mine, theirs in zip(first.average.parameters(), second.average.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_file_that_is_half_written_takes_nobodys_place(tmp_path: Path) -> None:
    path = tmp_path / "tokens.safetensors"
    path.write_text("older")

    def stopped() -> None:
        with written_whole(path) as partial:
            partial.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_text() == "older"
    with written_whole(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
