"""Golden checks of the MOSS-TTS-Local runtime: all goes through the loader, the cache and the stream that speak.

It does not know the arithmetic: it only drives and compares.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from engine.moss.checkpoint import load_network
from engine.moss.network import MossNetwork
from engine.moss.prompt import Prompt
from engine.moss.stream import MossStream, RandomDraws
from experiments.verify.bundle import GREEDY, Bundle, going, unpadded
from experiments.verify.compare import Check, Golden, compare
from experiments.verify.record import WatchedDraws, distribution, stacked_logits
from search.noise import RowNoise
from search.sampling import penalise


@torch.inference_mode()
def verify_moss(folder: Path) -> list[Check]:
    """All checks of a bundle in this layout; raises `ValueError` where its files cannot be read."""
    bundle = Bundle.of(load_network(folder), folder)
    golden = bundle.golden
    bundle.check_prefill()
    _check_forced(bundle)
    _check_greedy(bundle, "greedy", penalty=1.0)
    _check_greedy(bundle, "greedy_rep13", penalty=1.3)
    _check_guided(bundle, "cfg0")
    _check_guided(bundle, "cfg1")
    _check_distributions(golden)
    golden.check("sampled_frames", bundle.sampled(10, temperature=1.1, top_k=9, top_p=0.9, penalty=1.1).frames)
    bundle.check_reorder()
    return golden.checks


def _check_forced(bundle: Bundle) -> None:
    active, forced = bundle.golden["tf_active"], bundle.check_forced()
    bundle.golden.check("tf_text_logits", forced.stop_logits, active)
    network = _with_full_text_head(cast(MossNetwork, bundle.network))
    bundle.golden.check("text_head_candidate_logits", network.stop_logits(forced.local), active)


def _check_greedy(bundle: Bundle, name: str, penalty: float) -> None:
    golden = bundle.golden
    chunk = bundle.greedy(golden[f"{name}_frames"].shape[1], penalty)
    rows = bundle.rows(chunk.frames, going(chunk))
    golden.check(f"{name}_frames", chunk.frames)
    golden.check(f"{name}_text", rows[..., 0])
    if name == "greedy":
        for index, prompt in enumerate(bundle.prompts):
            golden.check(f"greedy_out.{index}", torch.cat([prompt[-1:], rows[index]]))


def _check_guided(bundle: Bundle, name: str) -> None:
    golden, spoken = bundle.golden, bundle.golden[f"{name}_continue"]
    rows = unpadded(golden["cfg_ids"], golden["cfg_mask"])
    batch = len(rows) // 2
    prompts = [Prompt(*sides) for sides in zip(rows[:batch], rows[batch:], strict=True)]
    draws = WatchedDraws(RandomDraws(RowNoise(0, [None] * batch, 1), GREEDY, bundle.network.config.books))
    stream = MossStream(bundle.network, prompts, 1, draws, guidance=float(golden[f"{name}_scale"]), penalty=1.0)
    chunk = stream.advance(spoken.shape[1])
    golden.check(f"{name}_frames", chunk.frames)
    golden.check(f"{name}_continue", going(chunk))
    decided = torch.cat([torch.ones_like(spoken[:, :1]), spoken[:, :-1]], 1)
    golden.check(f"{name}_text_logits_cond", torch.stack(draws.stop_logits, 1), decided)
    golden.check(f"{name}_guided_audio_logits", stacked_logits(draws.code_logits), spoken)


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


def _with_full_text_head(network: MossNetwork) -> MossNetwork:
    """The same weights with the other stop head: two rows of the tied text head."""
    other = MossNetwork(replace(network.config, text_head_mode="full_vocab"))
    weights = {name: weight for name, weight in network.state_dict().items() if name in other.state_dict()}
    other.load_state_dict(weights, assign=True)
    other.tie()
    return other.requires_grad_(False)


def _ranked(probabilities: Tensor, logits: Tensor) -> Tensor:
    """Probabilities in falling order of the logits; among equal logits in falling order of the probabilities."""
    ordered, first = probabilities.sort(-1, descending=True)
    second = logits.gather(-1, first).argsort(dim=-1, descending=True, stable=True)
    return ordered.gather(-1, second)
