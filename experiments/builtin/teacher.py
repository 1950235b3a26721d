"""The teacher: hibari-tts reading a text, with its pitch curve and the duration of every symbol.

It does not know the recipe's data layout; `speech.py` stores what is read here. The teacher's public model has no
duration output, so one internal node is exposed in a copy of the model file.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from hibari import Hibari, dsp
from numpy.typing import NDArray

from codec.builtin.spectrum import HOP, HOPS_PER_FRAME
from experiments.builtin.analysis import Envelopes, envelopes
from experiments.builtin.whole import written_whole

_DURATION_NODE = "/Cast_32_output_0"  # int64, duration of each symbol in 25 ms units (hibari-tts 0.2.1)
_UNIT = 600  # samples of one duration unit
_TEACHER_HOP = 300
_TAIL_UNITS = 7  # silence kept after the last spoken symbol
MAX_SYMBOLS = 230
_PUNCTUATION = set(';:,.!?—…"()“” ')


@dataclass(frozen=True)
class Reading:
    """One utterance: per-hop features `[T]` (T a multiple of 8 hops of 10 ms), its symbols and where each one ends."""

    text: str
    symbols: NDArray[np.int64]
    ends: NDArray[np.float32]
    envelopes: Envelopes
    log_pitch: NDArray[np.float32]
    voiced: NDArray[np.bool_]
    waveform: NDArray[np.float32]


def phonemes(front_end: Hibari, text: str) -> str:
    """The text as one phoneme string in the teacher's alphabet; several sentences are joined by a space."""
    joined = " ".join(front_end.phonemize(text))
    return "".join(symbol for symbol in joined if symbol in front_end.vocab)


class Teacher:
    """Reads text aloud. `scratch` is a folder for the model copy that also reports durations."""

    def __init__(self, scratch: Path) -> None:
        path = scratch / "teacher_with_durations.onnx"
        if not path.exists():
            model = onnx.load(Hibari().model_path)
            model.graph.output.append(onnx.helper.make_tensor_value_info(_DURATION_NODE, onnx.TensorProto.INT64, None))
            with written_whole(path) as partial:
                onnx.save(model, str(partial))
        self._voice = Hibari(model=str(path))

    def read(self, text: str, rng: np.random.Generator, speed: float = 1.0, lead_units: int = 4) -> Reading | None:
        """Speech and features of `text`, or None when it has no phonemes or too many.

        lead_units: silence kept before the first symbol, in units of 25 ms; 4 or more keep frame 0 silent.
        """
        spoken = phonemes(self._voice, text)
        symbols = np.asarray(self._voice.ids(spoken), np.int64)
        if not 3 <= len(symbols) <= MAX_SYMBOLS or all(symbol in _PUNCTUATION for symbol in spoken):
            return None
        feeds = {"ids": symbols[None], "speed": np.asarray([speed], np.float32)}
        *network, durations = self._voice.sess.run(None, feeds)
        harmonic, phase, noise, free, free_phase, pitch = (output[0] for output in network)
        speech = dsp.synth(harmonic, phase, noise, free, free_phase, pitch, rng)
        return _crop(text, spoken, symbols, np.asarray(durations).reshape(-1), speech, pitch, lead_units)


def _crop(
    text: str,
    spoken: str,
    symbols: NDArray[np.int64],
    durations: NDArray[np.int64],
    speech: NDArray[np.float32],
    pitch: NDArray[np.float32],
    lead_units: int,
) -> Reading:
    ends = np.cumsum(durations)
    last_spoken = max(i for i in range(1, len(symbols) - 1) if spoken[i - 1] not in _PUNCTUATION)
    start = max(0, int(durations[0]) - lead_units)
    stop = min(int(ends[-1]), int(ends[last_spoken]) + _TAIL_UNITS)
    frame = HOP * HOPS_PER_FRAME
    hops = -(-(stop - start) * _UNIT // frame) * HOPS_PER_FRAME
    centres = start * _UNIT + np.arange(hops, dtype=np.int64) * HOP
    left = np.clip(centres // _TEACHER_HOP, 0, len(pitch) - 1)
    right = np.minimum(left + 1, len(pitch) - 1)
    share = ((centres % _TEACHER_HOP) / _TEACHER_HOP).astype(np.float32)
    is_voiced = pitch > 40.0
    where = np.flatnonzero(is_voiced)
    log_curve = np.log(pitch[where]) if len(where) else np.asarray([5.3])
    curve = np.interp(np.arange(len(pitch)), where if len(where) else [0], log_curve).astype(np.float32)
    voiced = (is_voiced[left] * (1 - share) + is_voiced[right] * share) > 0.5
    log_pitch = curve[left] * (1 - share) + curve[right] * share
    return Reading(
        text=text,
        symbols=symbols,
        ends=np.clip((ends - start) * (_UNIT / HOP), 0, hops).astype(np.float32),
        envelopes=envelopes(speech, dsp.pulses(pitch), np.where(voiced, np.exp(log_pitch), 0.0), centres),
        log_pitch=log_pitch.astype(np.float32),
        voiced=voiced,
        waveform=np.pad(speech, (0, frame))[start * _UNIT : start * _UNIT + hops * HOP],
    )
