"""Bundles of the MOSS family: what they hold, and the checks that all of them have in common.

A bundle pads prompts on the left and lets batch rows trade places; both are translated here, since our cache pads on
the right and forks within a request. It does not know the arithmetic: it only drives and compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.moss.frames import FrameNetwork
from engine.moss.prompt import Prompt
from engine.moss.stream import Draws, MossStream, RandomDraws, new_cache, read_prompts
from experiments.verify.compare import Golden
from experiments.verify.record import ForcedDraws, Recorder, TorchDraws, WatchedDraws, stacked_logits
from search.config import Sampling
from search.noise import RowNoise
from search.protocols import Chunk

GREEDY = Sampling(temperature=0.0, text_temperature=0.0)


@dataclass(frozen=True)
class Bundle:
    """A loaded bundle: its network, its golden tensors, and the prompts without their padding."""

    network: FrameNetwork
    golden: Golden
    prompts: list[Tensor]

    @classmethod
    def of(cls, network: FrameNetwork, folder: Path) -> Bundle:
        golden = Golden(folder / "golden.safetensors")
        return cls(network, golden, unpadded(golden["ids"], golden["mask"]))

    @property
    def conditional(self) -> list[Prompt]:
        return [Prompt(prompt) for prompt in self.prompts]

    def stream(self, draws: Draws, n: int = 1, penalty: float = 1.0) -> MossStream:
        return MossStream(self.network, self.conditional, n, draws, guidance=1.0, penalty=penalty)

    def check_prefill(self) -> None:
        network, golden, mask = self.network, self.golden, self.golden["mask"]
        golden.check("inputs_embeds", network.embed(golden["ids"]))
        positions = [torch.arange(len(prompt)) for prompt in self.prompts]
        golden.check("position_ids", _left_padded(positions, mask))
        with Recorder(network) as seen:
            hidden = read_prompts(network, self.prompts, new_cache(network, len(self.prompts), 1))
        golden.check("prefill_hidden", _realigned(hidden, mask))
        for layer, states in enumerate(seen.layers):
            golden.check(f"prefill_layer_hidden.{layer}", _realigned(states[0], mask))
        for layer, (keys, values) in enumerate(zip(seen.keys, seen.values, strict=True)):
            golden.check(f"prefill_cache.{layer}.key", _realigned(keys[0].transpose(1, 2), mask), mask)
            golden.check(f"prefill_cache.{layer}.value", _realigned(values[0].transpose(1, 2), mask), mask)
        for index, prompt in enumerate(self.prompts):
            alone = read_prompts(network, [prompt], new_cache(network, 1, 1))
            golden.check(f"unpadded_prefill_hidden.{index}", alone[0])

    def check_forced(self) -> Forced:
        """Teacher forcing in chunks of one frame, with a commit halfway; all but the stop decision is compared."""
        network, golden, active = self.network, self.golden, self.golden["tf_active"]
        frames = golden["tf_frames"].masked_fill(~active[..., None], 0)
        draws = WatchedDraws(ForcedDraws(frames, active))
        made: list[Tensor] = []
        with Recorder(network) as seen:
            stream = self.stream(draws)
            hidden = [stream.state.hidden]
            for frame in range(frames.shape[1]):
                made.append(stream.advance(1).frames)
                hidden.append(stream.state.hidden)
                if frame == 2:
                    stream.commit(torch.full((len(frames),), 3))
        golden.check("tf_frames", torch.cat(made, 1))
        golden.check("tf_audio_logits", stacked_logits(draws.code_logits), active)
        local = torch.cat(seen.depth, 1).view(*active.shape, network.local_transformer.depths, -1)
        golden.check("tf_local_hidden", local, active)
        spoken = torch.cat([torch.ones_like(active[:, :1]), active], 1)
        golden.check("tf_global_hidden", torch.stack(hidden, 1), spoken)
        for layer in range(network.config.backbone.layers):
            for name, kept in (("key", seen.keys[layer]), ("value", seen.values[layer])):
                prompt = _realigned(kept[0].transpose(1, 2), golden["mask"])
                steps = torch.cat([step.squeeze(1).transpose(1, 2) for step in kept[1:]], 1)
                golden.check(f"tf_cache.{layer}.{name}", torch.cat([prompt, steps], 1), golden["tf_mask"])
        return Forced(torch.cat(made, 1), torch.stack(draws.stop_logits, 1), local)

    def greedy(self, frames: int, penalty: float = 1.0) -> Chunk:
        noise = RowNoise(0, [None] * len(self.prompts), 1)
        return self.stream(RandomDraws(noise, GREEDY, self.network.config.books), penalty=penalty).advance(frames)

    def sampled(self, frames: int, *, temperature: float, top_k: int, top_p: float, penalty: float) -> Chunk:
        """With the reference's distributions and its seeded generator."""
        draws = TorchDraws(int(self.golden["sampled_seed"]), temperature=temperature, top_k=top_k, top_p=top_p)
        return self.stream(draws, penalty=penalty).advance(frames)

    def check_reorder(self) -> None:
        """The reference moves rows between prompts; row r of its batch is candidate r of the prompt that it took over.

        Candidate 0 of every prompt is forced as the reference's row, the others astray; one fork brings them back.
        """
        golden, sources = self.golden, self.golden["reorder_index"]
        forced, following = golden["tf_frames"][:, :2], golden["reorder_frames"]
        batch = len(forced)
        before = torch.stack([forced.roll(-shift, 0) for shift in range(batch)], 1)  # [B, N, 2, q]
        frames = torch.cat([before, following.expand(batch, *following.shape)], 2).flatten(0, 1)
        stream = self.stream(ForcedDraws(frames, torch.ones(frames.shape[:2], dtype=torch.bool)), n=batch)
        stream.advance(2)
        stream.fork(torch.zeros(batch, batch, dtype=torch.int64))
        hidden = []
        for _ in range(following.shape[1]):
            stream.advance(1)
            hidden.append(stream.state.hidden.view(batch, batch, -1)[sources, torch.arange(batch)])
        golden.check("reorder_global_hidden", torch.stack(hidden, 1))

    def rows(self, frames: Tensor, going: Tensor) -> Tensor:
        """Frames `[B, T, q]` as the rows `[B, T, 1 + q]` that are read next; `going` bool `[B, T]`."""
        ids = self.network.config.ids
        return torch.cat([torch.where(going, ids.assistant_slot, ids.pad)[..., None], frames], 2)


@dataclass(frozen=True)
class Forced:
    """What came of teacher forcing: frames `[B, T, q]`, stop logits `[B, T, 2]`, depth hidden `[B, T, D, H]`."""

    frames: Tensor
    stop_logits: Tensor
    local: Tensor


def going(chunk: Chunk) -> Tensor:
    """Which frames of a first chunk are real, bool `[R, T]`."""
    return torch.arange(chunk.frames.shape[1]) < chunk.lengths[:, None]


def unpadded(rows: Tensor, mask: Tensor) -> list[Tensor]:
    """The valid rows of every prompt."""
    return [row[valid] for row, valid in zip(rows, mask, strict=True)]


def _left_padded(sequences: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Sequences of any lengths `[l, ...]` -> `[B, L, ...]`, zero at the padding on the left."""
    out = sequences[0].new_zeros(*mask.shape, *sequences[0].shape[1:])
    out[mask] = torch.cat(list(sequences))
    return out


def _realigned(rows: Tensor, mask: Tensor) -> Tensor:
    """Right-padded `[B, L, ...]` -> left-padded, zero at the padding."""
    return _left_padded([row[:length] for row, length in zip(rows, mask.sum(1).tolist(), strict=True)], mask)
