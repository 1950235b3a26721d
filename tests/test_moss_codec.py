"""Decoder streams of MOSS-Audio-Tokenizer beside a plain whole-sequence decode, and what a stream refuses."""

import math

import pytest
import torch
from torch import Tensor

from codec.moss import MossCodec, load_moss_codec
from codec.moss.config import TransformerConfig
from search.protocols import Chunk, Codec, CodecStream
from search.state import Step
from tests.tiny_codec import KINDS, tiny_codec

BOOKS, FRAMES = 3, 47  # more frames than go through the network at once, and than any context holds
TOLERANCE = 2e-6


@pytest.fixture(scope="module", params=KINDS)
def codec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MossCodec:
    return load_moss_codec(tiny_codec(tmp_path_factory.mktemp("codec"), request.param, seed=4), books=BOOKS)


@pytest.fixture
def codes() -> Tensor:
    return torch.randint(0, 16, (4, FRAMES, BOOKS), generator=torch.Generator().manual_seed(5))


def chunk(codes: Tensor, lengths: list[int] | None = None) -> Chunk:
    rows, frames, _ = codes.shape
    real = torch.full((rows,), frames) if lengths is None else torch.tensor(lengths)
    return Chunk(codes, real, torch.zeros(rows, dtype=torch.bool))


def whole(codec: MossCodec, codes: Tensor) -> Tensor:
    """[R, channels, samples] of codes [R, T, q] by one pass with a banded mask, without caches."""

    def step(config: TransformerConfig) -> Step:
        place = torch.arange(codes.shape[1] * config.steps)
        past = place[:, None] - place
        seen = (past >= 0) & (past < config.context)

        def attend(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            scores = query @ key.transpose(-1, -2) * config.head_dim**-0.5
            return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value

        return Step(place.expand(len(codes), 1, -1), attend)

    steps = [step(part) for part in codec.config.decoder if isinstance(part, TransformerConfig)]
    return codec.sound(codes[:, None], steps)[:, 0]


def test_offline_decoding_is_one_pass_over_everything(codec: MossCodec, codes: Tensor) -> None:
    expected = whole(codec, codes)
    assert expected.shape == (4, codec.channels, FRAMES * codec.hop)
    for row, sound in zip(codes, expected, strict=True):
        assert (codec.decode_channels(row) - sound).abs().max() <= TOLERANCE
        assert (codec.decode(row) - sound.mean(0)).abs().max() <= TOLERANCE
    assert (expected[0] - expected[1]).abs().max() > 1e-2, "other codes must sound otherwise"


@pytest.mark.parametrize("frames", [1, 10, 20])
@pytest.mark.parametrize("committed", [True, False])
def test_streamed_sound_is_the_offline_decode(codec: MossCodec, codes: Tensor, frames: int, committed: bool) -> None:
    expected = whole(codec, codes)
    stream, pieces = codec.open(4, 1), []
    for start in range(0, FRAMES, frames):
        piece = codes[:, start : start + frames]
        pieces.append(stream.decode_channels(chunk(piece)))
        if committed:
            stream.commit(torch.full((4,), piece.shape[1]))
    assert (torch.cat(pieces, 2) - expected).abs().max() <= TOLERANCE


def test_what_a_frame_changes_ends_where_the_contexts_end(codec: MossCodec, codes: Tensor) -> None:
    changed = codes[:1].clone()
    changed[0, 2] = (changed[0, 2] + 1) % 16
    parts = [part for part in codec.config.decoder if isinstance(part, TransformerConfig)]
    reach = sum(part.layers * (part.context - 1) / part.steps for part in parts)
    apart = (codec.decode(changed[0]) - codec.decode(codes[0])).abs().view(FRAMES, codec.hop).amax(1)
    assert apart[:2].max() == 0.0
    assert apart[2] > 1e-3
    end = 2 + math.ceil(reach)
    assert apart[end - 2] > 0.0
    assert apart[end + 1 :].max() == 0.0


def test_a_fork_takes_over_the_whole_past(codec: MossCodec, codes: Tensor) -> None:
    stream = codec.open(1, 4)
    first = stream.decode_channels(chunk(codes[:, :9]))
    parents = torch.tensor([[2, 0, 2, 3]])
    stream.fork(parents)
    second = stream.decode_channels(chunk(codes[:, 9:14]))
    joined = torch.cat([codes[parents[0], :9], codes[:, 9:14]], 1)
    heard = torch.cat([first[parents[0]], second], 2)
    assert (heard - whole(codec, joined)).abs().max() <= TOLERANCE


def test_a_request_without_new_frames_stays_where_it_is(codec: MossCodec, codes: Tensor) -> None:
    stream = codec.open(2, 2)
    heard = [stream.decode_channels(chunk(codes[:, :4]))]
    quiet = stream.decode_channels(chunk(codes[:, 4:7], [0, 0, 3, 2]))
    heard.append(stream.decode_channels(chunk(codes[:, 7:10])))
    assert not quiet[:2].any()
    assert not quiet[3, :, 2 * codec.hop :].any()
    skipped = torch.cat([codes[:2, :4], codes[:2, 7:10]], 1)
    assert (torch.cat(heard, 2)[:2] - whole(codec, skipped)).abs().max() <= TOLERANCE


def test_chunks_longer_than_the_network_takes_keep_requests_of_any_length(codec: MossCodec, codes: Tensor) -> None:
    stream = codec.open(2, 2)
    sound = stream.decode_channels(chunk(codes, [FRAMES, 30, 5, 3]))
    for row, length in enumerate([FRAMES, 30, 5, 3]):
        expected = whole(codec, codes[row : row + 1, :length])[0]
        assert (sound[row, :, : length * codec.hop] - expected).abs().max() <= TOLERANCE
        assert not sound[row, :, length * codec.hop :].any()
    stream.commit(torch.tensor([30, 3]))
    assert stream.decode(chunk(codes[:, :0])).shape == (4, 0)


def test_half_precision_stays_near(tmp_path_factory: pytest.TempPathFactory, codes: Tensor) -> None:
    """Measured: off by 1.1 % of the loudness."""
    folder = tiny_codec(tmp_path_factory.mktemp("codec"), "second", seed=4)
    exact = load_moss_codec(folder, books=BOOKS).decode(codes[0])
    half = load_moss_codec(folder, books=BOOKS, dtype=torch.bfloat16).decode(codes[0])
    assert half.dtype == torch.float32
    assert 1e-6 < (half - exact).square().mean().sqrt() / exact.square().mean().sqrt() < 3e-2


def test_promises_of_the_protocol(codec: MossCodec) -> None:
    typed: Codec = codec
    stream: CodecStream = codec.open(1, 1)
    assert typed.hop * typed.frame_rate == typed.sample_rate
    assert codec.book_sizes == [16] * BOOKS
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="it was closed"):
        stream.commit(torch.tensor([0]))


def test_what_cannot_be_decoded_is_refused_before_anything_moves(codec: MossCodec, codes: Tensor) -> None:
    stream = codec.open(2, 2)
    wrong = codes[:, :3].clone()
    wrong[1, 2, 0] = 16
    for frames, lengths, message in [
        (codes[:, :3, :2], None, "frames have 2 codes, the codec was loaded for 3 books"),
        (codes[:3, :3], None, r"integers \[4, T, 3\] are needed"),
        (codes[:, :3].float(), None, r"integers \[4, T, 3\] are needed"),
        (codes[:, :3], [3, 3, 3, 4], "are not 4 numbers from 0 to 3"),
        (wrong, None, r"code 16 in book 0 \(row 1, frame 2\); 0 to 15 are allowed"),
    ]:
        with pytest.raises(ValueError, match=message):
            stream.decode(chunk(frames, lengths))
    with pytest.raises(ValueError, match=r"parents has shape \(1, 4\); \(2, 2\) is needed"):
        stream.fork(torch.zeros(1, 4, dtype=torch.int64))
    padded = stream.decode_channels(chunk(wrong, [3, 2, 3, 3]))  # beyond a row's length anything may stand
    assert (padded[0] - codec.decode_channels(codes[0, :3])).abs().max() <= TOLERANCE
