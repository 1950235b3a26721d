"""Golden checks of MOSS-Audio-Tokenizer, first and second version: all goes through the loader and the streams in use.

The bundles put codebooks first and let batch rows trade places; here books come last, and rows that trade places are
candidates of one request. It does not know the arithmetic: it only drives and compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from codec.moss import MossCodec, MossCodecStream, load_moss_codec
from codec.moss.config import TransformerConfig
from codec.moss.network import SelfAttention, Transformer
from experiments.verify.compare import Check, Golden, compare
from search.protocols import Chunk
from search.state import Attend


@torch.inference_mode()
def verify_moss_codec(folder: Path) -> list[Check]:
    """All checks of a bundle in this layout; raises `ValueError` where its files cannot be read."""
    golden = Golden(folder / "golden.safetensors")
    codes = golden["codes"].permute(1, 2, 0)  # [B, T, q]
    codec = load_moss_codec(folder, books=codes.shape[2], dtype=torch.float32)
    golden.check("quantizer_embedding", codec.network.quantizer.decode(codes).transpose(1, 2))
    golden.check("full_decode_audio", torch.stack([codec.decode_channels(row) for row in codes]))
    if codec.channels == 1:
        _check_first_version_stream(codec, golden, codes, 1)
        _check_first_version_stream(codec, golden, codes, 4)
        recordings = list(golden["encode_wav"])
        _check_codes(codec, golden, "encode_codes", recordings)
        _check_lengths(codec, golden, "encode_codes_lengths", recordings)
        return golden.checks
    _check_stages(codec, golden, codes)
    _check_ragged(codec, golden, codes)
    _check_stream_and_state(codec, golden, codes)
    _check_reorder(codec, golden, codes)
    _check_exec_mask(codec, golden, codes)
    recordings = [golden[f"encode_wav.{row}"] for row in range(len(codes))]
    _check_hidden(codec, golden, recordings)
    _check_codes(codec, golden, "encode_codes", recordings)
    _check_lengths(codec, golden, "encode_codes_lengths", recordings)
    _check_codes(codec, golden, "encode_chunked_codes", recordings)
    _check_lengths(codec, golden, "encode_chunked_lengths", recordings)
    _check_codes(load_moss_codec(folder, dtype=torch.float32), golden, "encode_all_codes", recordings)
    return golden.checks


def _check_stages(codec: MossCodec, golden: Golden, codes: Tensor) -> None:
    """What every module of the decoder makes of the whole codes."""
    made: list[list[Tensor]] = [[] for _ in codec.network.decoder]

    def keep(kept: list[Tensor]) -> Any:
        return lambda _module, _arguments, output: kept.append(output[:, 0])

    hooks = [module.register_forward_hook(keep(kept)) for module, kept in zip(codec.network.decoder, made, strict=True)]
    audio = _heard(codec.open(len(codes), 1), codes)
    for hook in hooks:
        hook.remove()
    for place, pieces in enumerate(made):
        golden.check(f"decoder_stage.{place}", torch.cat(pieces, 1).transpose(1, 2))
    golden.check("full_decode_lengths", torch.full((len(codes),), audio.shape[2]))


def _check_ragged(codec: MossCodec, golden: Golden, codes: Tensor) -> None:
    audio = _heard(codec.open(len(codes), 1), codes, golden["lengths"].tolist())
    samples = golden["ragged_decode_lengths"]
    golden.check("ragged_decode_audio", audio, _first(samples, audio.shape))
    golden.check("ragged_decode_lengths", golden["lengths"] * codec.hop)


def _check_stream_and_state(codec: MossCodec, golden: Golden, codes: Tensor) -> None:
    """The recorded chunks, every one committed; and what attention has kept when the reference's state was taken."""
    stream, after = codec.open(len(codes), 1), int(golden["reorder_after_frames"])
    pieces, start = [], 0
    with _AttentionRecorder(codec) as seen:
        for frames in golden["stream_chunks"].tolist():
            pieces.append(_heard(stream, codes[:, start : start + frames]))
            stream.commit(torch.full((len(codes),), frames))
            start += frames
            if start == after:
                _check_state(golden, seen)
    golden.check("stream_decode_audio", torch.cat(pieces, 2))


def _check_state(golden: Golden, seen: _AttentionRecorder) -> None:
    for place, positions in seen.positions.items():
        spoken = torch.cat(positions, 1)  # [B, steps so far]
        golden.check(f"state_after_9.decoder.{place}.transformer.offsets", spoken[:, -1] + 1)
        for layer, (keys, values) in enumerate(seen.layers[place]):
            name = f"state_after_9.decoder.{place}.transformer.layers.{layer}.self_attn"
            window = golden[f"{name}.cached_positions"].shape[1]
            kept = _last(spoken, window, -1)
            golden.check(f"{name}.offset", spoken[:, -1] + 1)
            golden.check(f"{name}.cached_positions", kept)
            for kind, parts in (("keys", keys), ("values", values)):
                cached = _last(torch.cat(parts, 2).movedim(2, 1), window, 0).movedim(1, 2)
                golden.check(f"{name}.cached_{kind}", cached, (kept >= 0)[:, None].expand(cached.shape[:3]))


def _check_reorder(codec: MossCodec, golden: Golden, codes: Tensor) -> None:
    after, following = int(golden["reorder_after_frames"]), golden["reorder_codes"].permute(1, 2, 0)
    stream = codec.open(1, len(codes))
    _heard(stream, codes[:, :after])
    stream.fork(golden["reorder_index"][None])
    pieces = [_heard(stream, part) for part in (following[:, :2], following[:, 2:])]
    golden.check("reorder_audio", torch.cat(pieces, 2))


def _check_exec_mask(codec: MossCodec, golden: Golden, codes: Tensor) -> None:
    """Row 1 has no frames in the second chunk; the third finds it where the first left it."""
    stream = codec.open(len(codes), 1)
    golden.check("execmask_audio_a", _heard(stream, codes[:, :4]))
    golden.check("execmask_audio_b_rows02", _heard(stream, codes[:, 4:7], [3, 0, 3])[[0, 2]])
    golden.check("execmask_audio_c", _heard(stream, codes[:, 7:10]))


def _check_hidden(codec: MossCodec, golden: Golden, recordings: Sequence[Tensor]) -> None:
    hidden = [codec.hidden(recording).T for recording in recordings]
    lengths = torch.tensor([row.shape[1] for row in hidden])
    ours = torch.stack([F.pad(row, (0, int(lengths.max()) - row.shape[1])) for row in hidden])
    golden.check("encode_hidden", ours, _first(lengths, ours.shape))


def _check_codes(codec: MossCodec, golden: Golden, name: str, recordings: Sequence[Tensor]) -> None:
    """Codes must be equal; the reference's padding is left out, and its column for an incomplete last frame."""
    width = golden[name].shape[2]
    coded = [codec.codes(recording).T for recording in recordings]
    lengths = torch.tensor([row.shape[1] for row in coded])
    ours = torch.stack([F.pad(row, (0, width - row.shape[1])) for row in coded], 1)
    golden.check(name, ours, _first(lengths, ours.shape))


def _check_lengths(codec: MossCodec, golden: Golden, name: str, recordings: Sequence[Tensor]) -> None:
    golden.check(name, torch.tensor([len(codec.codes(recording)) for recording in recordings]))


def _check_first_version_stream(codec: MossCodec, golden: Golden, codes: Tensor, frames: int) -> None:
    """The reference's stream forgets too early once its ring is full: after that its whole decode is what counts."""
    stream, pieces = codec.open(len(codes), 1), []
    for start in range(0, codes.shape[1], frames):
        piece = codes[:, start : start + frames]
        pieces.append(_heard(stream, piece))
        stream.commit(torch.full((len(codes),), piece.shape[1]))
    audio, name = torch.cat(pieces, 2), f"stream{frames}_decode_audio"
    transformers = [module for module in codec.config.decoder if isinstance(module, TransformerConfig)]
    sane = min(module.context // module.steps for module in transformers)  # frames
    valid = _first(torch.full((len(codes),), sane * codec.hop), audio.shape)
    golden.check(name, audio, valid)
    golden.checks.append(compare(f"{name} = full_decode_audio", audio, golden["full_decode_audio"]))


class _AttentionRecorder:
    """Context manager that keeps what a decoder of one candidate a request gives to attention, by module and layer."""

    def __init__(self, codec: MossCodec) -> None:
        self._codec = codec
        self._handles: list[Any] = []
        self.positions: dict[int, list[Tensor]] = {}
        self.layers: dict[int, list[tuple[list[Tensor], list[Tensor]]]] = {}

    def __enter__(self) -> _AttentionRecorder:
        for place, module in enumerate(self._codec.network.decoder):
            for part in module.modules():
                if isinstance(part, Transformer):
                    self.positions[place] = []
                    self.layers[place] = [([], []) for _ in part.layers]
                    self._handles.append(part.register_forward_pre_hook(self._keep_positions(place)))
                if isinstance(part, SelfAttention):
                    self._handles.append(part.register_forward_pre_hook(self._watch(place)))
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep_positions(self, place: int) -> Any:
        def hook(_module: Transformer, arguments: tuple[Any, ...]) -> None:
            self.positions[place].append(arguments[1].positions[:, 0])

        return hook

    def _watch(self, place: int) -> Any:
        def hook(_module: SelfAttention, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            *others, attend = arguments
            return (*others, self._watched(place, attend))

        return hook

    def _watched(self, place: int, attend: Attend) -> Attend:
        def watching(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = self.layers[place][layer]
            keys.append(key[:, 0])
            values.append(value[:, 0])
            return attend(layer, query, key, value)

        return watching


def _heard(stream: MossCodecStream, codes: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
    """All channels of one more chunk, [R, channels, T * hop]; `lengths` None is all frames."""
    rows, frames, _ = codes.shape
    real = torch.full((rows,), frames) if lengths is None else torch.tensor(lengths)
    return stream.decode_channels(Chunk(codes, real, torch.zeros(rows, dtype=torch.bool)))


def _first(lengths: Tensor, shape: torch.Size) -> Tensor:
    """A mask [..., B or not, ..., T]: the first `lengths[b]` of the last axis; the batch is the axis of that length."""
    batch = shape.index(len(lengths))
    mask = torch.arange(shape[-1]) < lengths[:, None]
    middle = [1] * (len(shape) - batch - 2)
    return mask.view(len(lengths), *middle, shape[-1]).expand(shape)


def _last(rows: Tensor, count: int, filler: int) -> Tensor:
    """The last `count` entries of axis 1, filled up on the left."""
    missing = max(count - rows.shape[1], 0)
    padding = rows.new_full((len(rows), missing, *rows.shape[2:]), filler)
    return torch.cat([padding, rows[:, max(rows.shape[1] - count, 0) :]], 1)
