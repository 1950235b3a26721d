"""The codec's gate: word error rate and DNSMOS of the teacher, and of resynthesis from the true codes of its speech.

Judged by Whisper base and DNSMOS, which no training sees. It does not judge a language model, whose codes would be
samples.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import torch
from faster_whisper import WhisperModel
from hibari import Hibari
from numpy.typing import NDArray
from speechmos import dnsmos

from codec.builtin import BuiltinCodec
from codec.builtin.network import Decoder
from codec.builtin.spectrum import SAMPLE_RATE
from experiments.builtin.export_codec import trained
from experiments.builtin.token_data import load_utterances
from scorers.text import reference_of, spoken_words, word_errors

LOG = logging.getLogger(__name__)
Waveform = NDArray[np.float32]


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
        """Corpus word error rate, mean DNSMOS and every transcript that differs, with what should have been heard."""
        said = [reference_of(text) for text in texts]
        heard = [self.transcript(one) for one in audio]
        errors = sum(word_errors(text, words) for text, words in zip(said, heard, strict=True))
        pairs = [(text.words, spoken_words(words, text.language)) for text, words in zip(said, heard, strict=True)]
        return {
            "wer": round(errors / sum(len(text.words) for text in said), 4),
            "dnsmos": round(float(np.mean([self.quality(one) for one in audio])), 3),
            "wrong": [(" ".join(text), " ".join(words)) for text, words in pairs if text != words],
        }


def without_residual(codec: BuiltinCodec) -> BuiltinCodec:
    """The same codec with its residual books silenced: every codeword is zero."""
    muted = Decoder(codec.decoder.config)
    muted.load_state_dict(codec.decoder.state_dict())
    muted.codebooks.zero_()
    return BuiltinCodec(muted)


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
    utterances = load_utterances(arguments.work / f"{arguments.set}_tokens.safetensors")[: arguments.count]
    codes = [torch.from_numpy(utterance.codes).long() for utterance in utterances]
    judges = Judges(arguments.whisper, arguments.threads)
    teacher = Hibari()
    LOG.info("teacher: %s", json.dumps(judges.report(texts, [teacher(text, seed=0) for text in texts])))
    for name, one in (("with residual books", codec), ("without", without_residual(codec))):
        report = judges.report(texts, [one.decode(frames).numpy() for frames in codes])
        LOG.info("%s: %s", name, json.dumps(report))


if __name__ == "__main__":
    main()
