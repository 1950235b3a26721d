"""Stage `own samples`: utterances that the language model itself speaks, for the listener to learn from.

They are labelled with what their phone tokens say, not with the text: the listener has to hear what was really said. It
does not judge how well that is.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from codec.builtin.network import PHONES
from engine.builtin.voice import load_voice
from experiments.builtin.token_data import HOPS, Utterance, save_utterances
from search import SpeechRequest
from search.config import Sampling
from search.protocols import Engine

LOG = logging.getLogger(__name__)
BATCH = 20
TEMPERATURES = (1.0, 1.3, 1.6)  # a listener learns most from mistakes, which are rare at 1


def spoken(codes: NDArray[np.int16]) -> Utterance:
    """An utterance that says the runs of its own phone tokens; codes `[T, q]`, frame t announces frame t + 1."""
    announced = codes[:-1, :PHONES].reshape(-1)
    track = np.concatenate([np.zeros(PHONES, np.int16), announced])
    ends = np.append(np.flatnonzero(np.diff(track)) + 1, len(track))
    return Utterance(codes, track[ends - 1], (ends * (HOPS // PHONES)).astype(np.float32))


@torch.inference_mode()
def speak(engine: Engine, texts: Sequence[str], sampling: Sampling) -> list[NDArray[np.int16]]:
    """Plain samples of the texts in one batch: codes `[T, q]` each, cut at the longest budget among them."""
    requests = [SpeechRequest(text=text, id=text) for text in texts]
    stream = engine.open(requests, 1, sampling)
    chunk = stream.advance(max(engine.budget(request) for request in requests))
    stream.close()
    frames = chunk.frames.numpy().astype(np.int16)
    return [frames[row, :length] for row, length in enumerate(chunk.lengths.tolist())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--count", type=int, default=300, help="utterances, read from the end of the corpus")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=20)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(arguments.threads)
    engine = load_voice(arguments.work / "lm")
    # The corpus is longer than what the teacher has read: sentences from its end are new to the language model.
    texts = (arguments.work / "corpus.txt").read_text(encoding="utf-8").splitlines()[-arguments.count :]
    made: list[NDArray[np.int16]] = []
    for place, first in enumerate(range(0, len(texts), BATCH)):
        temperature = TEMPERATURES[place % len(TEMPERATURES)]
        made += speak(
            engine, texts[first : first + BATCH], Sampling(temperature=temperature, guidance=1.0, seed=arguments.seed)
        )
    kept = [(codes, text) for codes, text in zip(made, texts, strict=True) if len(codes) > 1]
    path = arguments.work / "own_samples.safetensors"
    save_utterances([spoken(codes) for codes, _ in kept], path)
    lines = "".join(json.dumps({"text": text}) + "\n" for _, text in kept)
    path.with_suffix(".jsonl").write_text(lines, encoding="utf-8")
    LOG.info("%s: %d utterances, %d frames", path, len(kept), sum(len(codes) for codes, _ in kept))


if __name__ == "__main__":
    main()
