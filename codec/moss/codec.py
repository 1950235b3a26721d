"""MOSS-Audio-Tokenizer as a codec: frames of codes to sound in streams that can be forked, and recordings to codes.

A codec holds no state of any stream, so a recording may be encoded while streams are open. It does not know which
engine the codes come from; the number of books that the engine speaks is given at load.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn

from codec.checkpoints.errors import CheckpointError
from codec.checkpoints.tensors import finite
from codec.moss.config import MossCodecConfig
from codec.moss.memory import StackMemory
from codec.moss.network import Fold, Stack, Unfold
from codec.moss.quantizer import Quantizer
from codec.moss.reference import prepared
from codec.moss.stream import PIECE, MossCodecStream
from codec.moss.weights import read_weights
from search.devices import device_of
from search.protocols import Chunk
from search.state import Step

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_REMEMBERED = 32  # encoded recordings


class MossCodecNetwork(nn.Module):
    """Encoder, quantiser and decoder under the names of the public checkpoints."""

    def __init__(self, config: MossCodecConfig) -> None:
        super().__init__()
        self.encoder = Stack(config.encoder, Fold)
        self.quantizer = Quantizer(config.quantizer)
        self.decoder = Stack(config.decoder, Unfold)


def load_moss_codec(
    folder: str | Path,
    books: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> MossCodec:
    """The codec in a folder with `config.json` and `model.safetensors` (or shards with their index).

    Args:
        books: codebooks of the frames that it is to decode and encode, the first ones; None is all.
        device: of the decoder and the quantiser; the encoder goes there with the first recording. None is the CPU.
        dtype: of the decoder's products; None is what `config.json` says. Everything else is float32.

    Raises:
        CheckpointError: the folder cannot be used; one line that names the file, the field or tensor, and the cure.
        ValueError: the device is not there.
    """
    folder, target = Path(folder), device_of(device)
    config = MossCodecConfig.load(folder / "config.json")
    most = config.quantizer.books
    if books is not None and not 1 <= books <= most:
        raise CheckpointError(
            f"{folder / 'config.json'}: quantizer_kwargs.num_quantizers is {most}, {books} books were asked for: "
            f"give 1 to {most}, or the codec that the voice was trained with"
        )
    dtype = dtype or _DTYPES[config.compute_dtype]
    with torch.device("meta"):
        network = MossCodecNetwork(config)
    weights = read_weights(network, folder)
    for name, weight in weights.items():
        products = name.startswith("decoder.") and weight.ndim == 2
        place = "cpu" if name.startswith("encoder.") else target
        weights[name] = weight.to(place, dtype if products else torch.float32)
        # Looking at the encoder would read half of the file, which most uses never need: `encode` looks at its result.
        if not name.startswith("encoder.") and not finite(weights[name]):
            raise CheckpointError(f"{folder}: tensor {name} is not finite in {dtype}: download the codec again")
    network.load_state_dict(weights, assign=True)
    return MossCodec(config, network, books or most, target, dtype)


class MossCodec:
    """Decodes frames of `books` codes, and encodes recordings to them.

    Attributes:
        hop: samples of a frame, of one channel.
        channels: of `decode_channels`; `decode` gives their mean.
        book_sizes: codes in each book.
    """

    def __init__(
        self, config: MossCodecConfig, network: MossCodecNetwork, books: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config, self.network = config, network.eval().requires_grad_(False)
        self.sample_rate, self.hop, self.frame_rate = config.sample_rate, config.hop, config.frame_rate
        self.channels, self.books, self.device, self.dtype = config.channels, books, device, dtype
        self.book_sizes = [config.quantizer.size] * books
        self._encoded: OrderedDict[bytes, Tensor] = OrderedDict()
        self._encoding = Lock()

    def open(self, batch: int, n: int) -> MossCodecStream:
        """A fresh decoder state for `batch * n` rows."""
        return MossCodecStream(self, batch, n)

    def decode(self, frames: Tensor) -> Tensor:
        """Offline: int64 [T, books] to float32 [T * hop], the mean of the channels."""
        return self.decode_channels(frames).mean(0)

    def decode_channels(self, frames: Tensor) -> Tensor:
        """Offline: int64 [T, books] to float32 [channels, T * hop], by the same code as a stream."""
        stream = self.open(1, 1)
        pieces = [torch.zeros(self.channels, 0, device=self.device)]
        for start in range(0, len(frames), PIECE):
            piece = frames[start : start + PIECE]
            length = torch.tensor([len(piece)])
            pieces.append(stream.decode_channels(Chunk(piece[None], length, torch.tensor([False])))[0])
            stream.commit(length)
        return torch.cat(pieces, -1)

    def encode(self, pcm: np.ndarray | Tensor, sample_rate: int) -> Tensor:
        """Codes int64 [T, books] of a recording, on the CPU; what is left over after its last whole frame is dropped.

        Always alone and in float32, since codes flip with the rounding of larger batches and shorter numbers. The last
        recordings are remembered by their content. Rate, channels and loudness are adapted first, see
        `codec.moss.reference.prepared`.

        Raises:
            ValueError: the recording is shorter than a frame, or cannot be used.
            CheckpointError: the encoder's weights are damaged.
        """
        sound = prepared(pcm, sample_rate, self.sample_rate, self.channels)
        key = hashlib.sha256(sound.contiguous().numpy().tobytes()).digest()
        with self._encoding:
            if key not in self._encoded:
                self._encoded[key] = self.codes(sound)
                if len(self._encoded) > _REMEMBERED:
                    self._encoded.popitem(last=False)
            self._encoded.move_to_end(key)
            return self._encoded[key].clone()

    @torch.inference_mode()
    def codes(self, sound: Tensor) -> Tensor:
        """Codes int64 [T, books], on the CPU, of float32 [channels, samples] as it is."""
        return self.network.quantizer.encode(self.hidden(sound), self.books).cpu()

    @torch.inference_mode()
    def hidden(self, sound: Tensor) -> Tensor:
        """What the quantiser is given: float32 [T, inputs] of float32 [channels, samples]."""
        frames = sound.shape[1] // self.hop
        if not frames:
            raise ValueError(
                f"reference: {sound.shape[1] / self.sample_rate:.3f} s is shorter than a frame of "
                f"{self.hop / self.sample_rate:.3f} s; give a longer recording"
            )
        encoder = self.network.encoder.to(self.device)
        memory = StackMemory.empty(self.config.encoder, 1, 1, torch.float32, self.device)
        samples = sound[:, : frames * self.hop].T.reshape(frames, -1).to(self.device)  # channels take turns
        pieces = []
        for start in range(0, frames, PIECE):
            piece = samples[start : start + PIECE]
            pieces.append(encoder(piece.view(1, 1, -1, 1), memory.extend(len(piece)))[0, 0])
            memory.commit(torch.tensor([len(piece)]))
        hidden = torch.cat(pieces)
        if not bool(hidden.isfinite().all()):
            raise CheckpointError(
                "encoder: its result is not finite: download the codec again, and check the recording"
            )
        return hidden

    def sound(self, codes: Tensor, steps: Sequence[Step]) -> Tensor:
        """Float32 [B, N, channels, T * hop] of codes [B, N, T, books], with attention from `steps`."""
        samples: Tensor = self.network.decoder(self.network.quantizer.decode(codes), steps)
        return samples.view(*codes.shape[:2], -1, self.channels).transpose(-1, -2)
