"""The codec's gate: word error rate and DNSMOS of the teacher, and of resynthesis from the true codes of its speech.

Judged by Whisper base and DNSMOS, which no training sees. It does not judge a language model, whose codes would be
samples. Text is compared in the spoken form of one named normaliser.
"""

import argparse
import itertools
import json
import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soxr
import torch
from faster_whisper import WhisperModel
from hibari import Hibari
from numpy.typing import NDArray
from safetensors.torch import load_file
from speechmos import dnsmos
from torch import Tensor
from whisper_normalizer.english import EnglishTextNormalizer

from codec.builtin import BuiltinCodec
from codec.builtin.network import SEMANTIC, Decoder
from codec.builtin.spectrum import SAMPLE_RATE
from experiments.builtin.export_codec import trained

LOG = logging.getLogger(__name__)
Waveform = NDArray[np.float32]


NORMALISER = f"whisper-normalizer {version('whisper-normalizer')}, English"
_normalised = EnglishTextNormalizer()


def spoken_words(text: str) -> str:
    """The text as `NORMALISER` has it: lower case, one spelling, contractions and numbers alike on both sides."""
    words: str = _normalised(text)
    return words


class Judges:
    """Whisper base (a folder in the faster-whisper format) and DNSMOS."""

    def __init__(self, whisper: Path, threads: int) -> None:
        self._whisper = WhisperModel(str(whisper), device="cpu", compute_type="int8", cpu_threads=threads)

    def transcript(self, audio: Waveform) -> str:
        """What Whisper hears, greedily, without a language to guess or a past to lean on."""
        heard = soxr.resample(audio, SAMPLE_RATE, 16_000)
        segments, _ = self._whisper.transcribe(
            heard,
            language="en",
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join(segment.text.strip() for segment in segments)

    def quality(self, audio: Waveform) -> float:
        """DNSMOS overall (P.835), 1 to 5."""
        heard = np.clip(soxr.resample(audio, SAMPLE_RATE, 16_000), -1.0, 1.0)
        return float(dnsmos.run(heard, 16_000)["ovrl_mos"])

    def report(self, texts: Sequence[str], audio: Sequence[Waveform]) -> dict[str, Any]:
        """Corpus word error rate, mean DNSMOS and every transcript that differs."""
        heard = [spoken_words(self.transcript(one)) for one in audio]
        said = [spoken_words(text) for text in texts]
        wrong = [pair for pair in zip(said, heard, strict=True) if pair[0] != pair[1]]
        quality = float(np.mean([self.quality(one) for one in audio]))
        return {"wer": round(jiwer.process_words(said, heard).wer, 4), "dnsmos": round(quality, 3), "wrong": wrong}


def without_residual(codec: BuiltinCodec) -> BuiltinCodec:
    """The same codec with its residual books silenced: every codeword is zero."""
    muted = Decoder(codec.decoder.config)
    muted.load_state_dict(codec.decoder.state_dict())
    muted.codebooks.zero_()
    return BuiltinCodec(muted)


def utterances(path: Path) -> list[Tensor]:
    """Codes int64 [T, q] of every utterance in a token store."""
    stored = load_file(str(path))
    offsets = stored["frame_offsets"].tolist()
    assert stored["codes"].shape[1] >= SEMANTIC
    return [stored["codes"][first:last].long() for first, last in itertools.pairwise(offsets)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--whisper", type=Path, required=True, help="folder with Whisper base for faster-whisper")
    parser.add_argument("--set", choices=["devset", "heldout"], default="devset")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)
    torch.set_num_threads(arguments.threads)
    codec = trained(arguments.work)
    lines = (arguments.work / f"{arguments.set}.jsonl").read_text(encoding="utf-8").splitlines()[: arguments.count]
    texts = [json.loads(line)["text"] for line in lines]
    codes = utterances(arguments.work / f"{arguments.set}_tokens.safetensors")[: arguments.count]
    judges = Judges(arguments.whisper, arguments.threads)
    teacher = Hibari()
    LOG.info("teacher: %s", json.dumps(judges.report(texts, [teacher(text, seed=0) for text in texts])))
    for name, one in (("with residual books", codec), ("without", without_residual(codec))):
        report = judges.report(texts, [one.decode(frames).numpy() for frames in codes])
        LOG.info("%s: %s", name, json.dumps(report))


if __name__ == "__main__":
    main()
