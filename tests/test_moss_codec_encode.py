"""Recordings to codes: what is done to them first, that nothing depends on company, and what is remembered."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from codec.moss import MossCodec, load_moss_codec
from codec.moss.memory import StackMemory
from codec.moss.reference import prepared
from search.protocols import Chunk
from tests.tiny_codec import tiny_codec

BOOKS = 3


def opened(folder: Path) -> MossCodec:
    return load_moss_codec(folder, books=BOOKS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_codec(tmp_path / "codec", "second", seed=6)


@pytest.fixture
def codec(folder: Path) -> MossCodec:
    return opened(folder)


def recording(samples: int, channels: int = 2, seed: int = 0, loudness: float = 0.1) -> Tensor:
    return torch.randn(channels, samples, generator=torch.Generator().manual_seed(seed)) * loudness


def test_codes_are_those_of_one_pass_whatever_the_length(codec: MossCodec) -> None:
    """The encoder looks back only, so a shorter recording has the first codes of a longer one."""
    sound = recording(60 * codec.hop)
    codes = codec.codes(sound)
    assert codes.shape == (60, BOOKS)
    assert codes.dtype == torch.int64
    assert len(codes.unique(dim=0)) > 10
    for frames in (1, 19, 20, 21, 41):
        assert torch.equal(codec.codes(sound[:, : frames * codec.hop]), codes[:frames])


def test_a_partial_last_frame_is_dropped(codec: MossCodec) -> None:
    sound = recording(5 * codec.hop)
    more = torch.cat([sound, recording(codec.hop - 1, seed=1)], 1)
    assert torch.equal(codec.codes(more), codec.codes(sound))
    with pytest.raises(ValueError, match=r"reference: 0\.073 s is shorter than a frame of 0\.080 s"):
        codec.encode(recording(codec.hop - 1).numpy(), codec.sample_rate)


def test_long_recordings_and_utterances_leave_nothing_uncommitted(
    codec: MossCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What attention keeps is bounded by its windows, not by the length."""
    memories: list[StackMemory] = []
    empty = StackMemory.empty

    def kept(*arguments: Any) -> StackMemory:
        memories.append(empty(*arguments))
        return memories[-1]

    monkeypatch.setattr(StackMemory, "empty", kept)
    codec.codes(recording(50 * codec.hop))
    codec.decode(torch.zeros(50, BOOKS, dtype=torch.int64))
    assert len(memories) == 2
    assert all(cache.pending == [0] for memory in memories for cache in memory.caches)


def test_fewer_books_are_the_first_of_more(folder: Path, codec: MossCodec) -> None:
    sound = recording(8 * codec.hop)
    assert torch.equal(load_moss_codec(folder).codes(sound)[:, :BOOKS], codec.codes(sound))


def test_encoding_beside_an_open_stream_changes_neither(folder: Path, codec: MossCodec) -> None:
    codes = torch.randint(0, 16, (2, 12, BOOKS))
    sound, alone = recording(30 * codec.hop), opened(folder)
    expected, lengths, ends = alone.codes(sound), torch.full((2,), 6), torch.zeros(2, dtype=torch.bool)
    stream, quiet = codec.open(1, 2), alone.open(1, 2)
    for start in (0, 6):
        chunk = Chunk(codes[:, start : start + 6], lengths, ends)
        assert torch.equal(stream.decode(chunk), quiet.decode(chunk))
        assert torch.equal(codec.encode(sound, codec.sample_rate), opened(folder).encode(sound, codec.sample_rate))
        assert torch.equal(codec.codes(sound), expected)


def test_the_encoder_is_float32_whatever_the_decoder_is(folder: Path, codec: MossCodec) -> None:
    half = load_moss_codec(folder, books=BOOKS, dtype=torch.bfloat16)
    sound = recording(40 * codec.hop)
    assert torch.equal(half.codes(sound), codec.codes(sound))


def test_recordings_are_remembered_by_their_content(codec: MossCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Tensor] = []
    plain = codec.codes

    def counted(sound: Tensor) -> Tensor:
        encoded.append(sound)
        return plain(sound)

    monkeypatch.setattr(codec, "codes", counted)
    sounds = [recording(4 * codec.hop, seed=seed).numpy() for seed in range(33)]
    first = codec.encode(sounds[0], codec.sample_rate)
    first[:] = -1
    assert int(codec.encode(sounds[0].copy(), codec.sample_rate).min()) >= 0, "what was handed out is the caller's"
    assert len(encoded) == 1
    for sound in sounds:
        codec.encode(sound, codec.sample_rate)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda sound: codec.encode(sound, codec.sample_rate), sounds[1:]))
    assert len(encoded) == 33, "32 are remembered, and the oldest goes first"
    codec.encode(sounds[0], codec.sample_rate)
    assert len(encoded) == 34


def test_loudness_moves_by_at_most_three_decibels() -> None:
    def gain(level: float) -> float:
        sound = recording(4000, loudness=10 ** (level / 20))
        sound *= 10 ** (level / 20) / sound.square().mean().sqrt()
        louder = prepared(sound, 48_000, 48_000, 2)
        return float(20 * torch.log10(louder.square().mean().sqrt())) - level

    assert [round(gain(level), 2) for level in (-40.0, -22.0, -20.0, -18.5, -10.0)] == [3.0, 2.0, 0.0, -1.5, -3.0]


def test_channels_are_repeated_cut_or_averaged() -> None:
    mono, four = recording(100, channels=1)[0], recording(100, channels=4)
    assert torch.equal(prepared(mono, 8000, 8000, 2)[0], prepared(mono.numpy(), 8000, 8000, 2)[1])
    assert torch.equal(prepared(four, 8000, 8000, 2), prepared(four[:2], 8000, 8000, 2))
    assert torch.equal(prepared(four[:2], 8000, 8000, 1), prepared(four[:2].mean(0), 8000, 8000, 1))


def test_another_rate_is_resampled(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("soxr", reason="resampling needs soxr: pip install soxr")
    time = np.arange(24_000) / 24_000
    tone = np.sin(2 * np.pi * 440 * time).astype(np.float32) * 0.1414
    sound = prepared(tone, 24_000, 48_000, 2)
    expected = torch.sin(2 * torch.pi * 440 * torch.arange(48_000) / 48_000) * 0.1414
    assert sound.shape == (2, 48_000)
    assert (sound[1, 500:-500] / sound.abs().max() - expected[500:-500] / 0.1414).abs().max() < 1e-3
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(ValueError, match="24000 Hz must become 48000 Hz, which needs soxr: pip install soxr"):
        prepared(tone, 24_000, 48_000, 2)


@pytest.mark.parametrize(
    ("pcm", "rate", "message"),
    [
        (np.zeros(0, np.float32), 48_000, r"reference: torch\.float32 of shape \[0\]; floats \[samples\]"),
        (np.zeros(100, np.int16), 48_000, r"reference: torch\.int16 of shape \[100\]"),
        (np.zeros((1, 2, 100)), 48_000, r"shape \[1, 2, 100\]"),
        (np.zeros((100, 2)), 48_000, "reference: 100 channels; put channels first"),
        (np.zeros(100), 0, "reference: the sample rate is 0"),
        (np.full(100, np.nan), 48_000, "reference: the recording holds values that are not finite"),
    ],
)
def test_what_is_no_recording_is_refused(codec: MossCodec, pcm: np.ndarray, rate: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codec.encode(pcm, rate)


def test_a_damaged_encoder_is_told_when_it_is_first_used(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["encoder.3.transformer.layers.0.norm1.bias"][2] = torch.inf
    save_file(weights, folder / "model.safetensors")
    codec = opened(folder)
    with pytest.raises(CheckpointError, match="encoder: its result is not finite: download the codec again"):
        codec.encode(recording(50), codec.sample_rate)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graphics_card_gives_the_same_codes_and_sound(folder: Path, codec: MossCodec) -> None:
    there = load_moss_codec(folder, books=BOOKS, device="cuda")
    sound = recording(30 * codec.hop)
    codes = there.encode(sound, codec.sample_rate)
    assert torch.equal(codes, codec.encode(sound, codec.sample_rate))
    assert (there.decode_channels(codes).cpu() - codec.decode_channels(codes)).abs().max() < 1e-4
    assert (
        there.open(1, 1).decode_channels(Chunk(codes[None].cuda(), torch.tensor([30]), torch.tensor([True]))).cpu()
        - codec.decode_channels(codes)
    ).abs().max() < 1e-4
