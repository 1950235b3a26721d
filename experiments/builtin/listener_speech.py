"""Stage `listener_speech`: codes spoken by the codec, as training clips for the listener, labelled by what is spoken.

Three kinds: `clean` (the codec's own tokens), `damaged` (see `listener_damage.py`), and `own` (samples of the language
model). Labels are always the phone tokens, whatever text was asked for. It does not train anything.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codec.builtin.codec import SHIPPED, BuiltinCodec
from codec.builtin.network import PHONES
from experiments.builtin.listener_damage import damaged
from experiments.builtin.listener_data import Clips, gather, timed_sounds
from experiments.builtin.token_data import load_utterances
from scorers.builtin.features import HOPS_PER_STEP, MELS, hann, listen, mel_filters, open_ear
from search.protocols import Chunk

LOG = logging.getLogger(__name__)
SEED = 20
ROWS = 16  # utterances decoded at once
SILENT_END = 2400  # samples of silence that are heard after an utterance


def track_of(codes: NDArray[np.int64]) -> tuple[list[int], list[float]]:
    """Symbols as the codec speaks them and where each ends (in hops): runs of the phone tokens, a frame later."""
    track = np.concatenate([np.zeros(PHONES, np.int64), codes[:-1, :PHONES].reshape(-1)])
    starts = np.flatnonzero(np.diff(track, prepend=-1))
    ends = np.append(starts[1:], len(track)) * 2.0
    return track[starts].tolist(), ends.tolist()


@torch.inference_mode()
def features(codec: BuiltinCodec, utterances: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float16]]:
    """Log-mel hops float16 [hops, 80] of each utterance's sound."""
    lengths = torch.tensor([len(codes) for codes in utterances])
    frames = torch.zeros(len(utterances), int(lengths.max()), utterances[0].shape[1], dtype=torch.int64)
    for row, codes in enumerate(utterances):
        frames[row, : len(codes)] = torch.from_numpy(codes)
    stream = codec.open(1, len(utterances))
    pcm: Tensor = stream.decode(Chunk(frames, lengths, torch.ones(len(utterances), dtype=torch.bool)))
    ear = open_ear(len(utterances), pcm.device)
    batch = listen(ear, pcm, lengths * codec.hop, mel_filters(), hann(), SILENT_END, 1)
    hops = batch.features.view(len(utterances), -1, MELS).half().numpy()
    return [hops[row, : int(steps) * HOPS_PER_STEP] for row, steps in enumerate(batch.imagined)]


def spoken(codec: BuiltinCodec, utterances: Sequence[NDArray[np.int64]]) -> Clips:
    """Clips of all utterances, those of like length decoded together."""
    order = np.argsort([len(codes) for codes in utterances])
    found = []
    for start in range(0, len(order), ROWS):
        group = [utterances[place] for place in order[start : start + ROWS]]
        for codes, mel in zip(group, features(codec, group), strict=True):
            found.append((mel, *timed_sounds(*track_of(codes))))
    return gather(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["clean", "damaged", "own"])
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--codec", type=Path, default=SHIPPED)
    parser.add_argument(
        "--tokens", type=Path, help="default: tokens.safetensors, or own_samples.safetensors, in the work folder"
    )
    parser.add_argument("--count", type=int, default=400, help="utterances of one file")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(arguments.threads)
    codec = BuiltinCodec.load(arguments.codec)
    name = "own_samples" if arguments.kind == "own" else "tokens"
    stored = load_utterances(arguments.tokens or arguments.work / f"{name}.safetensors")
    utterances = [one.codes.astype(np.int64) for one in stored if 3 <= len(one.codes) <= 250]
    folder = arguments.work / "listener"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.first, arguments.first + arguments.files):
        rng = np.random.default_rng([SEED, number])
        if arguments.kind == "own":
            chosen = utterances[number * arguments.count : (number + 1) * arguments.count]
        else:
            chosen = [
                utterances[i] for i in rng.choice(len(utterances), min(arguments.count, len(utterances)), replace=False)
            ]
        if not chosen:
            break
        if arguments.kind == "damaged":
            others = [utterances[i] for i in rng.choice(len(utterances), 50)]
            chosen = [damaged(codes, others, codec.book_sizes, rng) for codes in chosen]
        clips = spoken(codec, chosen)
        clips.save(folder / f"{arguments.kind}-{number:02d}.safetensors")
        LOG.info("%s %d: %d utterances, %.2f h", arguments.kind, number, len(clips), len(clips.mel) / 360_000)


if __name__ == "__main__":
    main()
