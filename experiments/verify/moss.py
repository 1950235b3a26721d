"""Golden checks of the MOSS-TTS-Local runtime: all goes through the loader, the cache and the stream that speak.

The bundle pads prompts on the left and lets batch rows trade places; both are translated here, since our cache pads on
the right and forks within a request. It does not know the arithmetic: it only drives and compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.moss.checkpoint import load_network
from engine.moss.network import MossNetwork
from engine.moss.prompt import Prompt
from engine.moss.stream import Draws, MossStream, RandomDraws, read_prompts
from experiments.verify.compare import Check, Golden, compare
from experiments.verify.record import ForcedDraws, Recorder, TorchDraws, WatchedDraws, distribution, stacked_logits
from search.config import Sampling
from search.noise import RowNoise
from search.sampling import penalise

_GREEDY = Sampling(temperature=0.0, text_temperature=0.0)


@torch.inference_mode()
def verify_moss(folder: Path) -> list[Check]:
    """All checks of a bundle in this layout; raises `ValueError` where its files cannot be read."""
    bundle = _Bundle.load(folder)
    _check_prefill(bundle)
    _check_forced(bundle)
    _check_greedy(bundle, "greedy", penalty=1.0)
    _check_greedy(bundle, "greedy_rep13", penalty=1.3)
    _check_guided(bundle, "cfg0")
    _check_guided(bundle, "cfg1")
    _check_distributions(bundle.golden)
    _check_sampled(bundle)
    _check_reorder(bundle)
    return bundle.golden.checks


@dataclass(frozen=True)
class _Bundle:
    """A loaded bundle: its network, its golden tensors, and the prompts without their padding."""

    network: MossNetwork
    golden: Golden
    prompts: list[Tensor]

    @classmethod
    def load(cls, folder: Path) -> _Bundle:
        golden = Golden(folder / "golden.safetensors")
        return cls(load_network(folder), golden, _unpadded(golden["ids"], golden["mask"]))

    def stream(self, prompts: Sequence[Prompt], draws: Draws, n: int = 1, guidance: float = 1.0) -> MossStream:
        return MossStream(self.network, prompts, n, draws, guidance=guidance, penalty=1.0)

    @property
    def conditional(self) -> list[Prompt]:
        return [Prompt(prompt) for prompt in self.prompts]


def _check_prefill(bundle: _Bundle) -> None:
    network, golden, mask = bundle.network, bundle.golden, bundle.golden["mask"]
    golden.check("inputs_embeds", network.embed(golden["ids"]))
    positions = [torch.arange(len(prompt)) for prompt in bundle.prompts]
    golden.check("position_ids", _left_padded(positions, mask))
    with Recorder(network) as seen:
        _, hidden = read_prompts(network, bundle.prompts, n=1)
    golden.check("prefill_hidden", _realigned(hidden, mask))
    for layer, states in enumerate(seen.layers):
        golden.check(f"prefill_layer_hidden.{layer}", _realigned(states[0], mask))
    for layer, (keys, values) in enumerate(zip(seen.keys, seen.values, strict=True)):
        golden.check(f"prefill_cache.{layer}.key", _realigned(keys[0].transpose(1, 2), mask), mask)
        golden.check(f"prefill_cache.{layer}.value", _realigned(values[0].transpose(1, 2), mask), mask)
    for index, prompt in enumerate(bundle.prompts):
        golden.check(f"unpadded_prefill_hidden.{index}", read_prompts(network, [prompt], n=1)[1][0])


def _check_forced(bundle: _Bundle) -> None:
    """Teacher forcing in chunks of one frame, with a commit halfway."""
    network, golden, active = bundle.network, bundle.golden, bundle.golden["tf_active"]
    frames = golden["tf_frames"].masked_fill(~active[..., None], 0)
    draws = WatchedDraws(ForcedDraws(frames, active))
    made: list[Tensor] = []
    with Recorder(network) as seen:
        stream = bundle.stream(bundle.conditional, draws)
        hidden = [stream.state.hidden]
        for frame in range(frames.shape[1]):
            made.append(stream.advance(1).frames)
            hidden.append(stream.state.hidden)
            if frame == 2:
                stream.commit(torch.full((len(frames),), 3))
    golden.check("tf_frames", torch.cat(made, 1))
    golden.check("tf_text_logits", torch.stack(draws.stop_logits, 1), active)
    golden.check("tf_audio_logits", stacked_logits(draws.code_logits), active)
    local = torch.cat(seen.depth, 1).view(*frames.shape, -1)
    golden.check("tf_local_hidden", local, active)
    golden.check("tf_global_hidden", torch.stack(hidden, 1), torch.cat([torch.ones_like(active[:, :1]), active], 1))
    for layer in range(network.config.backbone.layers):
        for name, kept in (("key", seen.keys[layer]), ("value", seen.values[layer])):
            prompt = _realigned(kept[0].transpose(1, 2), golden["mask"])
            steps = torch.cat([step.squeeze(1).transpose(1, 2) for step in kept[1:]], 1)
            golden.check(f"tf_cache.{layer}.{name}", torch.cat([prompt, steps], 1), golden["tf_mask"])
    golden.check("text_head_candidate_logits", _with_full_text_head(network).stop_logits(local), active)


def _check_greedy(bundle: _Bundle, name: str, penalty: float) -> None:
    golden, ids = bundle.golden, bundle.network.config.ids
    draws = RandomDraws(RowNoise(0, [None] * len(bundle.prompts), 1), _GREEDY, bundle.network.config.books)
    stream = MossStream(bundle.network, bundle.conditional, 1, draws, guidance=1.0, penalty=penalty)
    chunk = stream.advance(golden[f"{name}_frames"].shape[1])
    going = torch.arange(chunk.frames.shape[1]) < chunk.lengths[:, None]
    text = torch.where(going, ids.assistant_slot, ids.pad)
    golden.check(f"{name}_frames", chunk.frames)
    golden.check(f"{name}_text", text)
    if name == "greedy":
        rows = torch.cat([text[..., None], chunk.frames], 2)
        for index, prompt in enumerate(bundle.prompts):
            golden.check(f"greedy_out.{index}", torch.cat([prompt[-1:], rows[index]]))


def _check_guided(bundle: _Bundle, name: str) -> None:
    golden, going = bundle.golden, bundle.golden[f"{name}_continue"]
    rows = _unpadded(golden["cfg_ids"], golden["cfg_mask"])
    batch = len(rows) // 2
    prompts = [Prompt(*sides) for sides in zip(rows[:batch], rows[batch:], strict=True)]
    draws = WatchedDraws(RandomDraws(RowNoise(0, [None] * batch, 1), _GREEDY, bundle.network.config.books))
    chunk = bundle.stream(prompts, draws, guidance=float(golden[f"{name}_scale"])).advance(going.shape[1])
    golden.check(f"{name}_frames", chunk.frames)
    golden.check(f"{name}_continue", torch.arange(chunk.frames.shape[1]) < chunk.lengths[:, None])
    decided = torch.cat([torch.ones_like(going[:, :1]), going[:, :-1]], 1)
    golden.check(f"{name}_text_logits_cond", torch.stack(draws.stop_logits, 1), decided)
    golden.check(f"{name}_guided_audio_logits", stacked_logits(draws.code_logits), going)


def _check_distributions(golden: Golden) -> None:
    """Equal logits may trade probabilities: the reference's sort is not stable, ours takes the lower id first."""
    logits, name = golden["samp_logits"], "samp_probs"
    vocabulary = logits.shape[1]
    history = golden["samp_history"].clamp(max=vocabulary)  # the pad code is no code: it goes to a column that is cut
    seen = torch.zeros(len(logits), vocabulary + 1, dtype=torch.bool).scatter_(1, history, True)[:, :vocabulary]
    ours, reference = [], []
    for case, (temperature, top_k, top_p, penalty) in enumerate(golden["samp_params"].tolist()):
        penalised = penalise(logits, seen, penalty)
        probabilities = distribution(penalised, temperature=temperature, top_k=int(top_k), top_p=top_p)
        ours.append(_ranked(probabilities, penalised))
        reference.append(_ranked(golden[name][case], penalised))
    golden.checks.append(compare(name, torch.stack(ours), torch.stack(reference)))


def _check_sampled(bundle: _Bundle) -> None:
    golden = bundle.golden
    draws = TorchDraws(int(golden["sampled_seed"]), temperature=1.1, top_k=9, top_p=0.9)
    stream = MossStream(bundle.network, bundle.conditional, 1, draws, guidance=1.0, penalty=1.1)
    golden.check("sampled_frames", stream.advance(10).frames)


def _check_reorder(bundle: _Bundle) -> None:
    """The reference moves rows between prompts; here row r of its batch is candidate r of the prompt that it took over.

    Candidate 0 of every prompt is forced as the reference's row, the others astray; one fork brings them back.
    """
    golden, sources = bundle.golden, bundle.golden["reorder_index"]
    forced, following = golden["tf_frames"][:, :2], golden["reorder_frames"]
    batch = len(forced)
    before = torch.stack([forced.roll(-shift, 0) for shift in range(batch)], 1)  # [B, N, 2, q]
    frames = torch.cat([before, following.expand(batch, *following.shape)], 2).flatten(0, 1)
    draws = ForcedDraws(frames, torch.ones(frames.shape[:2], dtype=torch.bool))
    stream = bundle.stream(bundle.conditional, draws, n=batch)
    stream.advance(2)
    stream.fork(torch.zeros(batch, batch, dtype=torch.int64))
    hidden = []
    for _ in range(following.shape[1]):
        stream.advance(1)
        hidden.append(stream.state.hidden.view(batch, batch, -1)[sources, torch.arange(batch)])
    golden.check("reorder_global_hidden", torch.stack(hidden, 1))


def _with_full_text_head(network: MossNetwork) -> MossNetwork:
    """The same weights with the other stop head: two rows of the tied text head."""
    other = MossNetwork(replace(network.config, text_head_mode="full_vocab"))
    weights = {name: weight for name, weight in network.state_dict().items() if name in other.state_dict()}
    other.load_state_dict(weights, assign=True)
    other.tie()
    return other.requires_grad_(False)


def _unpadded(rows: Tensor, mask: Tensor) -> list[Tensor]:
    return [row[valid] for row, valid in zip(rows, mask, strict=True)]


def _left_padded(sequences: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Sequences of any lengths `[l, ...]` -> `[B, L, ...]`, zero at the padding on the left."""
    out = sequences[0].new_zeros(*mask.shape, *sequences[0].shape[1:])
    out[mask] = torch.cat(list(sequences))
    return out


def _realigned(rows: Tensor, mask: Tensor) -> Tensor:
    """Right-padded `[B, L, ...]` -> left-padded, zero at the padding."""
    return _left_padded([row[:length] for row, length in zip(rows, mask.sum(1).tolist(), strict=True)], mask)


def _ranked(probabilities: Tensor, logits: Tensor) -> Tensor:
    """Probabilities in falling order of the logits; among equal logits in falling order of the probabilities."""
    ordered, first = probabilities.sort(-1, descending=True)
    second = logits.gather(-1, first).argsort(dim=-1, descending=True, stable=True)
    return ordered.gather(-1, second)
