"""The listener's training clips: labels must say what is heard, when, whatever was cut, joined or damaged."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from codec.builtin import BuiltinCodec, DecoderConfig
from experiments.builtin.listener_damage import damaged
from experiments.builtin.listener_data import (
    CLIP_STEPS,
    Clips,
    excerpt,
    gather,
    joined,
    symbol_seconds,
    timed_sounds,
    varied,
    whole,
)
from experiments.builtin.listener_speech import features, track_of
from experiments.builtin.train_listener import SHARES, mixture, train
from scorers.builtin.network import ListenerConfig, Recogniser
from scorers.builtin.symbols import class_of

SPACE, STRESS, K, T, AE = 16, 156, 53, 62, 72


def two_words() -> Clips:
    """`kˈæ tk`: 10 hops a symbol, and mel hops that say their own number."""
    timed, cuts = timed_sounds([0, K, STRESS, AE, SPACE, T, K, 0], [10, 20, 30, 40, 50, 60, 70, 80])
    mel = np.repeat(np.arange(80, dtype=np.float16)[:, None], 80, 1)
    return gather([(mel, timed, cuts)] * 3)


def test_a_stress_mark_is_part_of_its_vowel_and_words_are_cut_in_the_gap() -> None:
    clip = whole(two_words(), 1)
    assert clip.sounds.tolist() == [class_of(symbol) for symbol in (K, AE, T, K)]
    assert clip.starts.tolist() == [10, 20, 50, 60]
    assert clip.ends.tolist() == [20, 40, 60, 70]
    assert two_words().cuts.tolist() == [45, 45, 45]


def test_an_excerpt_keeps_its_labels_in_place() -> None:
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        part = excerpt(two_words(), 0, rng, longest=45)
        seen.add((len(part.mel), *part.sounds.tolist()))
        first = int(part.mel[0, 0])
        assert (first + part.starts).tolist() in ([10, 20], [50, 60])
    assert seen == {(45, class_of(K), class_of(AE)), (35, class_of(T), class_of(K))}


def test_pace_moves_labels_with_the_sound() -> None:
    rng = np.random.default_rng(1)
    clip = whole(two_words(), 0)
    for _ in range(20):
        changed = varied(clip, rng)
        ratio = len(changed.mel) / len(clip.mel)
        assert 0.85 <= ratio <= 1.2
        np.testing.assert_allclose(changed.starts, clip.starts * ratio, atol=1)


def test_joined_clips_allow_every_label_where_it_is_said() -> None:
    batch = joined([two_words()], [1.0], rows=4, rng=np.random.default_rng(2))
    assert batch.features.shape == (4, CLIP_STEPS, 160)
    assert batch.counts.sum() == len(batch.sounds)
    assert batch.allowed[:, :, 0].all()
    for row, sounds in enumerate(np.split(batch.sounds, np.cumsum(batch.counts)[:-1])):
        assert set(np.flatnonzero(batch.allowed[row].any(0))) == {0, *sounds.tolist()}
        assert set(batch.frames[row].tolist()) == {0, *sounds.tolist()}


def test_a_missing_source_leaves_its_share_to_the_others() -> None:
    clips = two_words()
    _, shares = mixture({"teacher": [clips, clips], "own": [clips], "clean": [], "damaged": []})
    whole_share = SHARES["teacher"] + SHARES["own"]
    assert shares == pytest.approx([SHARES["teacher"] / 2 / whole_share] * 2 + [SHARES["own"] / whole_share])


def test_training_moves_the_network_and_stays_finite() -> None:
    torch.manual_seed(0)
    network = Recogniser(ListenerConfig(width=32, inner=32, dilations=(1,)))
    before = network.head.weight.detach().clone()
    assert train(network, [two_words()], [1.0], minutes=0.02, rate=1e-3, seed=0) >= 1
    assert bool(torch.isfinite(network.head.weight).all())
    assert not torch.equal(network.head.weight, before)


def test_clips_survive_storage(tmp_path: Path) -> None:
    two_words().save(tmp_path / "clips.safetensors")
    again = Clips.load(tmp_path / "clips.safetensors")
    for name, value in vars(two_words()).items():
        np.testing.assert_array_equal(getattr(again, name), value)


def test_mean_seconds_of_symbols(tmp_path: Path) -> None:
    stored = {
        "symbols": np.asarray([K, T, K, T], np.int16),
        "symbol_ends": np.asarray([10, 30, 20, 30], np.float32),
        "symbol_offsets": np.asarray([0, 2, 4]),
    }
    save_file(stored, str(tmp_path / "shard.safetensors"))
    seconds = symbol_seconds([tmp_path / "shard.safetensors"])
    assert seconds[[K, T]].tolist() == pytest.approx([0.15, 0.15])
    assert seconds.sum() == pytest.approx(0.3)


def codes(phones: list[int]) -> np.ndarray:
    frames = np.zeros((len(phones) // 4, 9), np.int64)
    frames[:, :4] = np.asarray(phones).reshape(-1, 4)
    frames[:, 4:7] = 50
    return frames


def test_a_frame_speaks_the_phones_that_the_frame_before_announced() -> None:
    symbols, ends = track_of(codes([K, K, AE, AE, AE, T, T, 0, 9, 9, 9, 9]))
    assert symbols == [0, K, AE, T, 0]
    assert ends == [8, 12, 18, 22, 24]


def test_damage_changes_what_is_said_within_the_books() -> None:
    rng = np.random.default_rng(3)
    config = DecoderConfig()
    phones = [K, K, AE, AE, SPACE, T, T, T, AE, AE, SPACE, SPACE, K, K, K, K] * 3
    clean, other = codes(phones), codes([T] * 40)
    results = [damaged(clean, [other], config.book_sizes, rng) for _ in range(50)]
    assert all((result >= 0).all() and (result < config.book_sizes).all() for result in results)
    assert clean[:, :4].reshape(-1).tolist() == phones
    assert len({str(track_of(result)[0]) for result in results}) > 25


def test_the_codecs_sound_is_heard_hop_for_hop() -> None:
    codec = BuiltinCodec.random(DecoderConfig(width=32, layers=1, hop_width=16, latent=8, phone_width=4), seed=0)
    short, long = codes([K] * 16), codes([AE] * 40)
    together = features(codec, [short, long])
    assert [len(mel) >= len(clip) * 8 for mel, clip in zip(together, (short, long), strict=True)] == [True, True]
    alone = features(codec, [long])[0]
    torch.testing.assert_close(torch.from_numpy(together[1]), torch.from_numpy(alone), atol=2e-2, rtol=0)
