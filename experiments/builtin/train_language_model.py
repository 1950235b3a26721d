"""Stage `language model`: learns to speak the codes of `tokens.safetensors` through the network that runs the product.

The learning rate is one cosine over the minutes given, whatever the machine's speed; what is kept is a moving average
of the weights. A stopped run goes on with `--resume`. It does not judge by ear: `evaluate.py` does.
"""

from __future__ import annotations

import argparse
import copy
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.moss.checkpoint import load_network, save_network
from engine.moss.config import GlobalConfig, LocalConfig, MossConfig, SpecialIds
from engine.moss.network import MossNetwork
from experiments.builtin.corruption import PHONE_BOOKS, corrupt
from experiments.builtin.language_loss import language_losses
from experiments.builtin.muon import Optimizer
from experiments.builtin.token_data import Batch, Batches, Utterance, collate, load_utterances
from experiments.builtin.whole import written_whole

LOG = logging.getLogger(__name__)
SYMBOLS = 180
CONFIG = MossConfig(
    backbone=GlobalConfig(
        hidden=256,
        layers=6,
        heads=4,
        kv_heads=4,
        head_dim=64,
        feed_forward=704,
        vocabulary=192,
        rope_theta=1e4,
        norm_eps=1e-6,
    ),
    local=LocalConfig(layers=1, heads=4, feed_forward=896, rope_base=1e4, norm_eps=1e-6),
    ids=SpecialIds(
        pad=180, im_start=181, im_end=182, audio_start=183, audio_end=184, user_slot=185, assistant_slot=186
    ),
    codebook_sizes=(SYMBOLS,) * PHONE_BOOKS + (201, 201, 120, 256, 256),
    audio_pad=256,
    sample_rate=24_000,
)
# What is said matters most, and residual books are close to noise: their gradients would drown the rest.
BOOK_WEIGHTS = (1.5, 1.5, 1.5, 1.5, 0.8, 0.8, 0.6, 0.3, 0.3)
UNCONDITIONAL = 0.08
DEPTH_SHARE = 0.5
DAMAGED_CODES, DAMAGED_PHONES = 0.08, 0.12
GUIDE_FIRST, GUIDE_LATER, GUIDE_UNTIL = 1.0, 0.3, 0.2
WARM_UP = 100
AVERAGE = 0.998
REPORT_SECONDS, SAVE_SECONDS = 60.0, 180.0
HELD_OUT = 64


@dataclass(frozen=True)
class Settings:
    """What a run depends on besides its data; `rate` is the peak learning rate, `rows` the size of a batch."""

    minutes: float
    rate: float
    rows: int
    seed: int


def new_network(seed: int, config: MossConfig = CONFIG) -> MossNetwork:
    """Random weights. A phone token starts near its symbol's text embedding: to say a symbol is to copy it."""
    torch.manual_seed(seed)
    network = MossNetwork(config)
    depth = config.backbone.layers + config.local.layers
    for name, parameter in network.named_parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5 / 2)
        if name.endswith(("o_proj.weight", "down_proj.weight", "c_proj.weight", "fc_out.weight")):
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5 / 2 / math.sqrt(2 * depth))
    with torch.no_grad():
        embeddings = [parameter for name, parameter in network.named_parameters() if "embed" in name]
        text, *books = embeddings
        for embedding in embeddings:
            embedding.normal_(std=0.04)
        for phones in books[:PHONE_BOOKS]:
            phones.add_(text[: len(phones)])
    return network


class Training:
    """One run: network, phone head, optimiser, moving average, and how far it has come."""

    def __init__(self, settings: Settings, config: MossConfig = CONFIG) -> None:
        self.settings = settings
        self.network = new_network(settings.seed, config)
        self.phone_head = nn.Linear(config.backbone.hidden, PHONE_BOOKS * config.codebook_sizes[0])
        self.optimizer = Optimizer(self.network, self.phone_head, settings.rate)
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.weights = torch.tensor(BOOK_WEIGHTS)
        self.steps, self.frames, self.seconds, self.epoch = 0, 0, 0.0, 0

    @property
    def progress(self) -> float:
        """Share of the minutes that is spent, 0 to 1."""
        return min(1.0, self.seconds / (60.0 * self.settings.minutes))

    def step(self, batch: Batch) -> Tensor:
        """Learn from one batch; returns the flat losses (see `Losses.flat`)."""
        began = time.monotonic()
        rows = corrupt(batch.rows, batch.spoken, codes=DAMAGED_CODES, phones=DAMAGED_PHONES, generator=self.generator)
        stops = batch.stops[batch.decides]
        kept = (torch.rand(len(stops), generator=self.generator) < DEPTH_SHARE) | stops
        with torch.autocast("cpu", torch.bfloat16):
            losses = language_losses(self.network, self.phone_head, batch, rows, kept)
        guide = GUIDE_FIRST if self.progress < GUIDE_UNTIL else GUIDE_LATER
        losses.total(self.weights, guide).backward()  # type: ignore[no-untyped-call]
        cosine = 0.5 * (1.0 + math.cos(math.pi * self.progress))
        self.optimizer.step(min(1.0, (self.steps + 1) / WARM_UP) * (0.01 + 0.99 * cosine))
        self._follow()
        self.steps += 1
        self.frames += int(batch.spoken.sum())
        self.seconds += time.monotonic() - began
        return losses.flat()

    def _follow(self) -> None:
        decay = min(AVERAGE, (1.0 + self.steps) / (10.0 + self.steps))
        with torch.no_grad():
            for average, current in zip(self.average.parameters(), self.network.parameters(), strict=True):
                average.lerp_(current, 1.0 - decay)

    def save(self, folder: Path) -> None:
        """The averaged weights as a checkpoint of the product's format, and beside them what `resume` needs."""
        save_network(self.average, folder)
        state = {
            "network": self.network.state_dict(),
            "phone_head": self.phone_head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "counts": (self.steps, self.frames, self.seconds, self.epoch),
        }
        with written_whole(folder / "training.pt") as partial:
            torch.save(state, partial)

    def resume(self, folder: Path) -> None:
        """Go on where `save` was called; the epoch that was under way starts again."""
        state: dict[str, Any] = torch.load(folder / "training.pt", weights_only=True)
        self.network.load_state_dict(state["network"])
        self.network.tie()
        self.phone_head.load_state_dict(state["phone_head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.average.load_state_dict(load_network(folder).state_dict())
        self.steps, self.frames, self.seconds, self.epoch = state["counts"]


def held_out_losses(network: MossNetwork, phone_head: nn.Linear, utterances: list[Utterance]) -> Tensor:
    """Flat losses (see `Losses.flat`), averaged over batches of 16 utterances; nothing damaged, all decisions."""
    found = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for first in range(0, len(utterances), 16):
            part = utterances[first : first + 16]
            batch = collate(part, [False] * len(part), CONFIG.ids, CONFIG.audio_pad)
            found.append(language_losses(network, phone_head, batch, batch.rows).flat())
    return torch.stack(found).mean(0)


def described(losses: Tensor) -> str:
    """One line: cross-entropies, stop loss, attention mass (geometric mean) of the guided layers, phone loss."""
    books = CONFIG.books
    ends = " ".join(f"{value:.3f}" for value in losses[:books].tolist())
    mass = " ".join(f"{value:.3f}" for value in (-losses[books + 1 : -1]).exp().tolist())
    return f"[{ends}] stop {losses[books]:.4f} mass {mass} hidden {losses[-1]:.3f}"


def train(training: Training, utterances: list[Utterance], held_out: list[Utterance], folder: Path) -> None:
    """Run to the end of the minutes, reporting every minute and saving every three."""
    settings = training.settings
    batches = Batches(utterances, CONFIG.ids, CONFIG.audio_pad, settings.rows, UNCONDITIONAL)
    seen: list[Tensor] = []
    reported = saved = training.seconds
    frames = training.frames
    while training.progress < 1.0:
        for batch in batches.epoch(training.epoch, settings.seed):
            seen.append(training.step(batch))
            if training.seconds - reported > REPORT_SECONDS:
                speed = (training.frames - frames) / (training.seconds - reported)
                LOG.info(
                    "%.1f min, step %d, epoch %d, %.0f frames/s\n  seen     %s\n  held out %s",
                    training.seconds / 60.0,
                    training.steps,
                    training.epoch,
                    speed,
                    described(torch.stack(seen).mean(0)),
                    described(held_out_losses(training.average, training.phone_head, held_out)),
                )
                reported, frames, seen = training.seconds, training.frames, []
            if training.seconds - saved > SAVE_SECONDS:
                training.save(folder)
                saved = training.seconds
            if training.progress >= 1.0:
                break
        training.epoch += 1
    training.save(folder)
    LOG.info("end: held out %s", described(held_out_losses(training.average, training.phone_head, held_out)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--rows", type=int, default=2500, help="rows of a batch, prompts and padding included")
    parser.add_argument("--resume", action="store_true", help="go on from the last save of this folder")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(arguments.threads)
    folder = arguments.work / "lm"
    utterances = load_utterances(arguments.work / "tokens.safetensors")
    held_out = load_utterances(arguments.work / "heldout_tokens.safetensors")[:HELD_OUT]
    training = Training(Settings(arguments.minutes, arguments.rate, arguments.rows, arguments.seed))
    if arguments.resume:
        training.resume(folder)
    folder.mkdir(parents=True, exist_ok=True)
    frames = sum(len(u.codes) for u in utterances)
    LOG.info("%d utterances, %.1f hours, %s", len(utterances), frames * 0.08 / 3600.0, training.settings)
    train(training, utterances, held_out, folder)


if __name__ == "__main__":
    main()
