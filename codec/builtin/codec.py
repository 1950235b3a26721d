"""The built-in codec: frames of nine codes to 24 kHz sound, in streams that can be forked.

Decodes only: the encoder that made the training codes belongs to the recipe. It does not know which engine made the
codes, and a stream keeps all of its memory in one `StreamState`.
"""

import json
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from codec.builtin.network import SEMANTIC, Decoder, DecoderConfig, NetworkMemory
from codec.builtin.spectrum import FRAME, HARMONIC_BANDS, HOPS_PER_FRAME, NOISE_BANDS, SAMPLE_RATE
from codec.builtin.synthesizer import Synthesizer, SynthesizerState
from codec.chunks import checked_codes
from search.protocols import Chunk
from search.state import Attend, BranchCache, fork_rows, shared

FORMAT = "chunksearch-builtin-codec-1"
SHIPPED = Path(__file__).parent


@dataclass
class StreamState:
    """Everything that a stream remembers. `position` counts frames since the start and is common to all rows."""

    cache: BranchCache
    network: NetworkMemory
    synthesizer: SynthesizerState
    position: int = shared()


class BuiltinCodecStream:
    """Decoder state of `batch * n` rows. Made by `BuiltinCodec.open`."""

    def __init__(self, codec: "BuiltinCodec", batch: int, n: int) -> None:
        config = codec.decoder.config
        rows = batch * n
        self._codec, self._shape = codec, (batch, n)
        cache = BranchCache(
            layers=config.layers,
            groups=batch,
            n=n,
            kv_heads=config.heads,
            head_dim=config.width // config.heads,
            device=codec.device,
            window=config.window,
        )
        self._state: StreamState | None = StreamState(
            cache, codec.decoder.memory(rows), codec.synthesizer.state(rows), position=0
        )

    @torch.inference_mode()
    def decode(self, chunk: Chunk) -> Tensor:
        """Float32 [R, T * 1920] samples of the new frames, zero after a row's length.

        Raises:
            ValueError: a shape, a length or a code that this codec does not have; nothing has been decoded then.
        """
        state = self._open_state()
        codes = checked_codes(chunk, self._shape[0] * self._shape[1], self._codec.book_sizes, self._codec.device)
        rows, length, _ = codes.shape
        if not length:
            return torch.zeros(rows, 0, device=self._codec.device)
        place = torch.arange(length, device=codes.device)
        active = (chunk.lengths.view(self._shape) > 0).any(1)
        step = state.cache.extend(length, active)
        residual = self._codec.decoder.residual(codes[..., SEMANTIC:])
        parameters, state.network = self._codec.decoder(
            codes[..., :SEMANTIC], residual, state.network, place + state.position, self._by_row(step.attend)
        )
        first_hop = state.position * HOPS_PER_FRAME
        samples, state.synthesizer = self._codec.synthesizer(parameters, state.synthesizer, first_hop)
        state.position += length
        real = torch.arange(length * FRAME, device=codes.device) < chunk.lengths.to(codes.device)[:, None] * FRAME
        return samples.where(real, 0.0)

    @torch.inference_mode()
    def fork(self, parents: Tensor) -> None:
        """Row `(b, i)` goes on as a copy of old row `(b, parents[b, i])`; int64 [B, N]. Identity copies nothing."""
        if tuple(parents.shape) != self._shape:
            raise ValueError(f"codec fork: parents has shape {tuple(parents.shape)}; {self._shape} is needed")
        fork_rows(self._open_state(), parents)

    @torch.inference_mode()
    def commit(self, frames: Tensor) -> None:
        """The oldest `frames[b]` uncommitted frames are now equal in all rows of request b; int64 [B]."""
        self._open_state().cache.commit(frames)

    def close(self) -> None:
        """Release the state. May be called more than once."""
        self._state = None

    def _open_state(self) -> StreamState:
        if self._state is None:
            raise ValueError("codec stream: it was closed; open a new one")
        return self._state

    def _by_row(self, attend: Attend) -> Attend:
        """Attention on [R, H, T, d] from the cache's attention on [B, N, H, T, d]."""

        def by_row(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            split = (part.view(*self._shape, *part.shape[1:]) for part in (query, key, value))
            return attend(layer, *split).flatten(0, 1)

        return by_row


class BuiltinCodec:
    """Turns the built-in voice's frames into PCM.

    Attributes:
        book_sizes: how many codes each of the books has: 4 phone books, 2 pitch, 1 energy, then the residual books.
    """

    sample_rate = SAMPLE_RATE
    hop = FRAME
    frame_rate = Fraction(SAMPLE_RATE, FRAME)

    def __init__(self, decoder: Decoder, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.decoder = decoder.to(self.device, torch.float32).eval().requires_grad_(False)
        self.synthesizer = Synthesizer(self.device)
        self.book_sizes = decoder.config.book_sizes

    @classmethod
    def random(cls, config: DecoderConfig, seed: int, device: torch.device | str = "cpu") -> "BuiltinCodec":
        """A codec with random weights that hums at a sane level: for tests of everything but quality."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            decoder = Decoder(config)
            decoder.codebooks.normal_()
        decoder.mean.copy_(torch.tensor([-5.0] * HARMONIC_BANDS + [-7.0] * NOISE_BANDS + [5.3, 0.5]))
        return cls(decoder, device)

    @classmethod
    def load(cls, folder: Path = SHIPPED, device: torch.device | str = "cpu") -> "BuiltinCodec":
        """Read `config.json` and `model.safetensors` from `folder`.

        Raises:
            FileNotFoundError: one of the files is missing.
            ValueError: a file is damaged, or a tensor is missing, of another shape or not finite; names both.
        """
        config, weights = folder / "config.json", folder / "model.safetensors"
        for path in (config, weights):
            if not path.is_file():
                raise FileNotFoundError(f"codec: {path} is missing")
        decoder = Decoder(read_config(config))
        try:
            stored = load_file(str(weights))
        except SafetensorError as error:
            raise ValueError(f"codec: {weights} cannot be read: {error}") from error
        expected = decoder.state_dict()
        for name, tensor in expected.items():
            found = tuple(stored[name].shape) if name in stored else "missing"
            if found != tuple(tensor.shape):
                raise ValueError(f"codec: {weights}: tensor {name} is {found}; {tuple(tensor.shape)} is needed")
            if not bool(stored[name].isfinite().all()):
                raise ValueError(f"codec: {weights}: tensor {name} holds values that are not finite")
        unknown = sorted(stored.keys() - expected.keys())
        if unknown:
            raise ValueError(f"codec: {weights}: tensor {unknown[0]} is not known to this codec")
        decoder.load_state_dict(stored)
        return cls(decoder, device)

    def save(self, folder: Path) -> None:
        """Write `config.json` and `model.safetensors` (float16)."""
        folder.mkdir(parents=True, exist_ok=True)
        halves = {name: tensor.half().cpu().contiguous() for name, tensor in self.decoder.state_dict().items()}
        save_file(halves, str(folder / "model.safetensors"), metadata={"format": "pt"})
        written = {"format": FORMAT, "sample_rate": SAMPLE_RATE, "decoder": asdict(self.decoder.config)}
        (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")

    def open(self, batch: int, n: int) -> BuiltinCodecStream:
        """A fresh decoder state for `batch * n` rows."""
        return BuiltinCodecStream(self, batch, n)

    def decode(self, frames: Tensor) -> Tensor:
        """Offline: int64 [T, q] to float32 [T * 1920], by the same code as a stream of one chunk."""
        stream = self.open(1, 1)
        length = torch.tensor([len(frames)])
        return stream.decode(Chunk(frames[None], length, torch.ones(1, dtype=torch.bool)))[0]


def read_config(path: Path) -> DecoderConfig:
    """The decoder's sizes from `config.json`; `ValueError` names what is wrong in it."""
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"codec: {path} is not JSON: {error}") from error
    if not isinstance(read, dict) or read.get("format") != FORMAT or not isinstance(read.get("decoder"), dict):
        raise ValueError(f"codec: {path} is not a {FORMAT} configuration")
    if read.get("sample_rate") != SAMPLE_RATE:
        raise ValueError(f"codec: {path}: sample_rate is {read.get('sample_rate')!r}; {SAMPLE_RATE} is needed")
    known = {part.name for part in fields(DecoderConfig)}
    unknown, missing = sorted(read["decoder"].keys() - known), sorted(known - read["decoder"].keys())
    if unknown:
        allowed = ", ".join(sorted(known))
        raise ValueError(f"codec: {path}: decoder setting {unknown[0]!r} is not known; known are {allowed}")
    if missing:
        raise ValueError(f"codec: {path}: decoder setting {missing[0]!r} is missing")
    try:
        return DecoderConfig(**read["decoder"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
