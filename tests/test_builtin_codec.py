"""The built-in codec with a small random decoder: streaming, forks, lengths, errors. Says nothing of quality."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from codec.builtin import BuiltinCodec, DecoderConfig
from codec.builtin.synthesizer import Synthesizer
from search.protocols import Chunk

TINY = DecoderConfig(
    phone_width=8, width=32, heads=2, layers=2, window=4, hop_width=16, hop_layers=2, pitch_width=8, latent=8
)
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def codec() -> BuiltinCodec:
    torch.set_num_threads(1)
    return BuiltinCodec.random(TINY, seed=3)


def random_codes(codec: BuiltinCodec, rows: int, frames: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    books = [torch.randint(0, size, (rows, frames), generator=generator) for size in codec.book_sizes]
    return torch.stack(books, -1)


def chunk(codes: Tensor, lengths: list[int] | None = None) -> Chunk:
    rows, frames, _ = codes.shape
    real = torch.full((rows,), frames) if lengths is None else torch.tensor(lengths)
    return Chunk(codes, real, torch.zeros(rows, dtype=torch.bool))


@settings(max_examples=15, deadline=None)
@given(data=st.data(), n=st.sampled_from([1, 2, 5]), batch=st.sampled_from([1, 2]), seed=st.integers(0, 99))
def test_streamed_equals_offline_under_any_partition_and_forks(
    codec: BuiltinCodec, data: st.DataObject, n: int, batch: int, seed: int
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    fresh = random_codes(codec, batch * n, sum(sizes), seed)
    stream = codec.open(batch, n)
    history = torch.zeros(batch * n, 0, len(codec.book_sizes), dtype=torch.int64)
    heard = torch.zeros(batch * n, 0)
    start = 0
    pending = 0
    for size in sizes:
        new = fresh[:, start : start + size]
        heard = torch.cat([heard, stream.decode(chunk(new))], 1)
        history = torch.cat([history, new], 1)
        start, pending = start + size, pending + size
        parents = torch.tensor([[data.draw(st.integers(0, n - 1)) for _ in range(n)] for _ in range(batch)])
        index = (parents + torch.arange(batch)[:, None] * n).flatten()
        stream.fork(parents)
        history, heard = history[index], heard[index]
        if data.draw(st.booleans()):
            survivor = torch.arange(batch).repeat_interleave(n) * n
            stream.fork(torch.zeros(batch, n, dtype=torch.int64))
            history, heard = history[survivor], heard[survivor]
            stream.commit(torch.full((batch,), pending))
            pending = 0
    for row in range(batch * n):
        offline = codec.decode(history[row])
        assert offline.shape == (start * codec.hop,)
        assert (heard[row] - offline).abs().max() <= TOLERANCE


def test_a_row_does_not_hear_its_mates(codec: BuiltinCodec) -> None:
    codes = random_codes(codec, 6, 9, seed=1)
    together = codec.open(1, 6).decode(chunk(codes))
    for row in range(6):
        assert (together[row] - codec.decode(codes[row])).abs().max() <= TOLERANCE
    assert (together[0] - together[1]).abs().max() > 0.01, "rows with other codes must sound otherwise"


def test_a_stream_starts_fresh_whatever_was_decoded_before(codec: BuiltinCodec) -> None:
    codes = random_codes(codec, 2, 6, seed=2)
    first = codec.open(1, 2).decode(chunk(codes))
    codec.open(1, 2).decode(chunk(random_codes(codec, 2, 11, seed=5)))
    assert torch.equal(codec.open(1, 2).decode(chunk(codes)), first)


def test_frames_beyond_a_length_are_silent_and_may_hold_padding(codec: BuiltinCodec) -> None:
    codes = random_codes(codec, 3, 5, seed=4)
    whole = codec.open(1, 3).decode(chunk(codes))
    padded = codes.clone()
    padded[1, 2:], padded[2] = 256, 256
    heard = codec.open(1, 3).decode(chunk(padded, [5, 2, 0]))
    assert torch.equal(heard[0], whole[0])
    assert torch.equal(heard[1, : 2 * codec.hop], whole[1, : 2 * codec.hop])
    assert not heard[1, 2 * codec.hop :].any()
    assert not heard[2].any()


def test_an_ended_row_can_be_replaced_by_a_fork_of_a_living_one(codec: BuiltinCodec) -> None:
    codes = random_codes(codec, 2, 8, seed=6)
    padded = codes[:, :4].clone()
    padded[1, 1:] = 256
    stream = codec.open(1, 2)
    stream.decode(chunk(padded, [4, 1]))
    stream.fork(torch.tensor([[0, 0]]))
    rest = stream.decode(chunk(codes[:1, 4:].repeat(2, 1, 1)))
    offline = codec.decode(codes[0])[4 * codec.hop :]
    assert (rest - offline).abs().max() <= TOLERANCE


def test_a_permutation_and_its_inverse_restore_the_sound_bitwise(codec: BuiltinCodec) -> None:
    codes = random_codes(codec, 4, 9, seed=7)
    plain, turned = codec.open(1, 4), codec.open(1, 4)
    for stream in (plain, turned):
        stream.decode(chunk(codes[:, :4]))
    permutation = torch.tensor([[2, 0, 3, 1]])
    turned.fork(permutation)
    turned.fork(permutation.argsort(1))
    assert torch.equal(turned.decode(chunk(codes[:, 4:])), plain.decode(chunk(codes[:, 4:])))


@pytest.mark.parametrize(("book", "value"), [(0, 180), (4, 201), (6, 120), (8, 256), (3, -1)])
def test_a_code_that_a_book_does_not_have_is_named(codec: BuiltinCodec, book: int, value: int) -> None:
    codes = random_codes(codec, 2, 3, seed=8)
    codes[1, 2, book] = value
    with pytest.raises(ValueError, match=rf"code {value} in book {book} \(row 1, frame 2\)"):
        codec.open(1, 2).decode(chunk(codes))


def test_wrong_shapes_are_refused_before_anything_is_decoded(codec: BuiltinCodec) -> None:
    codes = random_codes(codec, 2, 3, seed=9)
    stream = codec.open(1, 2)
    with pytest.raises(ValueError, match=r"\[2, T, 9\]"):
        stream.decode(chunk(codes[..., :8]))
    with pytest.raises(ValueError, match="lengths"):
        stream.decode(chunk(codes, [3, 4]))
    with pytest.raises(ValueError, match="parents"):
        stream.fork(torch.zeros(2, 2, dtype=torch.int64))
    assert torch.equal(stream.decode(chunk(codes)), codec.open(1, 2).decode(chunk(codes)))


def test_memory_of_an_unknown_kind_makes_a_fork_fail(codec: BuiltinCodec) -> None:
    stream = codec.open(1, 2)
    stream._open_state().network.hops.append("what the row said")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be forked"):
        stream.fork(torch.tensor([[1, 0]]))


def test_a_closed_stream_says_so(codec: BuiltinCodec) -> None:
    stream = codec.open(1, 1)
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.decode(chunk(random_codes(codec, 1, 1, seed=0)))


def test_saved_weights_are_the_same_codec_to_half_precision(codec: BuiltinCodec, tmp_path: Path) -> None:
    codes = random_codes(codec, 1, 4, seed=10)[0]
    codec.save(tmp_path / "once")
    once = BuiltinCodec.load(tmp_path / "once")
    for name, tensor in once.decoder.state_dict().items():
        assert torch.equal(tensor, codec.decoder.state_dict()[name].half().float()), name
    once.save(tmp_path / "twice")
    assert torch.equal(BuiltinCodec.load(tmp_path / "twice").decode(codes), once.decode(codes))


def test_damaged_folders_are_named(codec: BuiltinCodec, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        BuiltinCodec.load(tmp_path)
    codec.save(tmp_path)
    settings_file = tmp_path / "config.json"
    written = json.loads(settings_file.read_text())
    written["decoder"]["width"] = 64
    settings_file.write_text(json.dumps(written))
    with pytest.raises(ValueError, match=r"model\.safetensors: tensor .* needed"):
        BuiltinCodec.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00")
    with pytest.raises(ValueError, match="cannot be read"):
        BuiltinCodec.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_rate": 48_000}, "sample_rate is 48000; 24000 is needed"),
        ({"decoder": {"width": 32}}, "decoder setting 'energy_steps' is missing"),
        ({"decoder": asdict(TINY) | {"width": "wide"}}, "width is 'wide'"),
        ({"decoder": asdict(TINY) | {"depth": 3}}, "'depth' is not known"),
    ],
)
def test_faults_of_a_configuration_name_the_file(
    codec: BuiltinCodec, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    codec.save(tmp_path)
    settings_file = tmp_path / "config.json"
    settings_file.write_text(json.dumps(json.loads(settings_file.read_text()) | change))
    with pytest.raises(ValueError, match=rf"config\.json: .*{message}"):
        BuiltinCodec.load(tmp_path)
    settings_file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        BuiltinCodec.load(tmp_path)


def test_weights_that_are_not_finite_are_named(codec: BuiltinCodec, tmp_path: Path) -> None:
    codec.save(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    weights["mean"][3] = torch.nan
    save_file(weights, path)
    with pytest.raises(ValueError, match=r"model\.safetensors: tensor mean holds values that are not finite"):
        BuiltinCodec.load(tmp_path)


def test_synthesis_has_the_pitch_it_was_given() -> None:
    """Autocorrelation of a steady 200 Hz hum peaks at 120 samples."""
    parameters = torch.full((1, 80, 106), -12.0)
    parameters[..., :64], parameters[..., 104], parameters[..., 105] = -4.0, torch.log(torch.tensor(200.0)), 1.0
    synthesizer = Synthesizer()
    samples, _ = synthesizer(parameters, synthesizer.state(1), 0)
    steady = samples[0, 4800:9600]
    scores = torch.stack([(steady[:-400] * steady[lag : len(steady) - 400 + lag]).sum() for lag in range(60, 200)])
    assert int(scores.argmax()) + 60 == 120


def test_synthesis_phase_stays_exact_after_twenty_seconds() -> None:
    """Phase is kept in whole parts of a cycle: twenty seconds at a steady pitch ends where arithmetic says."""
    parameters = torch.full((1, 200, 106), -12.0)
    parameters[..., 104], parameters[..., 105] = torch.log(torch.tensor(233.0)), 1.0
    synthesizer = Synthesizer()
    state = synthesizer.state(1)
    state.glide[0] = torch.tensor([233.0, 1.0])
    for part in range(10):
        _, state = synthesizer(parameters, state, part * 200)
    frequency = float(torch.exp(parameters[0, 0, 104]))
    expected = frequency * 20.0 % 1.0
    assert abs(int(state.phase[0]) / 2**40 - expected) < 1e-4


def test_minimum_phase_keeps_the_size_of_every_gain() -> None:
    log_gain = torch.randn(2, 3, 481, generator=torch.Generator().manual_seed(0))
    gain = Synthesizer()._minimum_phase(log_gain)
    assert (gain.abs().log() - log_gain).abs().max() < 1e-4
    assert gain.angle().abs().max() > 0.1, "the phase must do something"
