"""Stage `train_listener`: the phoneme recogniser of the built-in listener, on teacher speech and codec speech.

Connectionist temporal classification, in which each sound may only be reported near where it is said, so that errors
are heard soon; a framewise target on a head that is thrown away helps at the start. It does not know the reward.
"""

import argparse
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.builtin.listener_data import Batch, Clips, joined, symbol_seconds, teacher_clips, whole
from scorers.builtin.features import HOPS_PER_STEP, MELS
from scorers.builtin.network import ListenerConfig, Recogniser
from scorers.builtin.symbols import BLANK, CLASSES
from scorers.builtin.weights import load, save

LOG = logging.getLogger(__name__)
SEED = 20
ROWS = 24
PEAK_RATE, WARM_STEPS = 2.5e-3, 60
FRAME_WEIGHT = 0.3
BARRED = -1e4
SHARES = {"teacher": 0.3, "clean": 0.2, "damaged": 0.3, "own": 0.2}
"""Of the clips, by where they come from; a source that is not there leaves its share to the others."""


def losses(network: Recogniser, frame_head: nn.Linear, batch: Batch) -> tuple[Tensor, Tensor]:
    """CTC loss per sound, and framewise cross-entropy."""
    features = torch.from_numpy(batch.features)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, _ = network(features, network.memory(len(features)))
        scores, frames = network.head(hidden), frame_head(hidden)
    log_probabilities = scores.float().log_softmax(-1)
    barred = torch.where(torch.from_numpy(batch.allowed), 0.0, BARRED)
    rows, steps, _ = log_probabilities.shape
    ctc = F.ctc_loss(
        (log_probabilities + barred).transpose(0, 1),
        torch.from_numpy(batch.sounds),
        torch.full((rows,), steps),
        torch.from_numpy(batch.counts),
        blank=BLANK,
        reduction="none",
    )
    possible = ctc < -BARRED / 2
    ctc = torch.where(possible, ctc, 0.0).sum() / max(1, int(batch.counts.sum()))
    return ctc, F.cross_entropy(frames.float().flatten(0, 1), torch.from_numpy(batch.frames).flatten())


@torch.inference_mode()
def error_rate(network: Recogniser, clips: Clips, most: int = 60) -> float:
    """Phoneme errors of the free reading over phonemes said, on whole utterances."""
    from rapidfuzz.distance import Levenshtein

    errors = total = 0
    for place in range(min(most, len(clips))):
        utterance = whole(clips, place)
        mel = np.pad(utterance.mel.astype(np.float32), ((0, 30 + len(utterance.mel) % 2), (0, 0)), mode="edge")
        features = torch.from_numpy(mel).view(1, -1, HOPS_PER_STEP * MELS)
        scores, _ = network.read(features, network.memory(1), torch.tensor([0]))
        path = scores[0].argmax(-1)
        heard = torch.unique_consecutive(path)
        errors += Levenshtein.distance(heard[heard != BLANK].tolist(), utterance.sounds.tolist())
        total += len(utterance.sounds)
    return errors / max(1, total)


def normalisation(clips: Sequence[Clips]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each mel band, float32 [80] each."""
    sample = np.concatenate([part.mel[::50].astype(np.float32) for part in clips])
    return torch.from_numpy(sample.mean(0)), torch.from_numpy(sample.std(0))


def spoken_clips(folder: Path, kind: str) -> list[Clips]:
    """The files of one kind that `listener_speech` wrote."""
    return [Clips.load(path) for path in sorted(folder.glob(f"{kind}-*.safetensors"))]


def mixture(sources: dict[str, list[Clips]]) -> tuple[list[Clips], list[float]]:
    """All clips, and how often each file is drawn: by its kind's share, and within a kind by its utterances."""
    clips: list[Clips] = []
    weights: list[float] = []
    for kind, files in sources.items():
        total = sum(len(file) for file in files)
        clips += files
        weights += [SHARES[kind] * len(file) / total for file in files]
    return clips, [weight / sum(weights) for weight in weights]


def train(
    network: Recogniser, sources: Sequence[Clips], shares: Sequence[float], minutes: float, rate: float, seed: int
) -> int:
    """Train for `minutes` under a cosine of the learning rate; returns the number of steps."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    frame_head = nn.Linear(network.config.width, CLASSES)
    optimiser = torch.optim.AdamW(
        [*network.parameters(), *frame_head.parameters()], rate, (0.9, 0.98), weight_decay=0.01
    )
    begin, step = time.monotonic(), 0
    seen = np.zeros(2)
    while (spent := (time.monotonic() - begin) / 60 / minutes) < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / WARM_STEPS) * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * spent)))
        ctc, frame = losses(network, frame_head, joined(sources, shares, ROWS, rng))
        optimiser.zero_grad(set_to_none=True)
        (ctc + FRAME_WEIGHT * frame).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        step += 1
        seen += (ctc.item(), frame.item())
        if step % 50 == 0:
            LOG.info("step %d, %.1f min: ctc %.3f frame %.3f", step, spent * minutes, *(seen / 50))
            seen[:] = 0
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--minutes", type=float, default=35.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rate", type=float, default=PEAK_RATE)
    parser.add_argument("--start", type=Path, help="go on from these weights")
    parser.add_argument("--mean", action="store_true", help="keep the mean of the weights at the start and the end")
    parser.add_argument("--out", type=Path, help="default: listener.safetensors in the work folder")
    parser.add_argument("--shards", type=int, default=1000, help="at most so many teacher shards")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    paths = sorted((arguments.work / "speech").glob("shard-*.safetensors"))[: arguments.shards]
    teacher = [teacher_clips(path) for path in paths]
    sources = {kind: spoken_clips(arguments.work / "listener", kind) for kind in SHARES} | {"teacher": teacher}
    network = load(arguments.start) if arguments.start else Recogniser(ListenerConfig())
    if not arguments.start:
        network.mean, network.deviation = normalisation(teacher)
        network.seconds = torch.from_numpy(symbol_seconds(paths))
    LOG.info("%d parameters", sum(value.numel() for value in network.parameters()))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    steps = train(network.train(), *mixture(sources), arguments.minutes, arguments.rate, arguments.seed)
    if arguments.mean:
        after = network.state_dict()
        network.load_state_dict({name: (value + after[name]) / 2 for name, value in before.items()})
    network.eval()
    rates = {"teacher": error_rate(network, teacher_clips(arguments.work / "speech" / "devset.safetensors"))}
    for path in sorted((arguments.work / "listener" / "dev").glob("*.safetensors")):
        rates[path.stem] = error_rate(network, Clips.load(path))
    LOG.info("phoneme error rates: %s", json.dumps(rates))
    record = {
        "minutes": str(arguments.minutes),
        "steps": str(steps),
        "seed": str(arguments.seed),
        "rates": json.dumps(rates),
    }
    save(network, arguments.out or arguments.work / "listener.safetensors", record)


if __name__ == "__main__":
    main()
