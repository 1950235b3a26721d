"""DNSMOS: what listeners would say of a clip's sound, guessed by the two networks that the `speechmos` package ships.

One is trained on ratings of signal, background and overall quality (ITU-T P.835), one on ratings of overall quality
alone (P.808). Both were made to judge noise suppression. Neither knows what should have been said, or by whom, and
both rate the first second of a clip below the whole of it: compare clips of about one length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from scorers.heads import Clip, Judgement, Term
from scorers.rereader import Rereader
from search.request import SpeechRequest

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

SAMPLE_RATE = 16_000
WINDOW = 144_160
"""Samples that the networks hear, 9.01 s."""

SHORTEST = SAMPLE_RATE // 2
"""Fewer samples than these, repeated to fill a window, are heard as a buzz."""

SILENCE = 1e-3
"""A clip whose loudest sample stays below is silent: -60 dB full scale."""

# Cubic and square fits of the networks' outputs to the scale of the ratings, from the evaluation script of the Deep
# Noise Suppression Challenge; highest power first.
SIGNAL = (-0.08397278, 1.22083953, 0.0052439)
BACKGROUND = (-0.13166888, 1.60915514, -0.39604546)
OVERALL = (-0.06766283, 1.11546468, 0.04602535)

Windows = NDArray[np.float32]


class Dnsmos:
    """The networks, one window at a time: on a CPU a batch of 8 took 1.5 times as long, and 1 GB more.

    A clip that is shorter than a window is repeated to fill it. Samples beyond 1 are clipped as a sound card would.

    Args:
        signal_background_overall, overall: the networks of P.835 and P.808.
        windows: of a clip, float32 [W, 144160]; the result is their mean.
    """

    name = "naturalness"
    device = torch.device("cpu")
    sample_rate = SAMPLE_RATE
    terms: tuple[Term, ...] = (
        Term("dnsmos", meaning="overall quality, DNSMOS P.835, 1 to 5"),
        Term("dnsmos_sig", meaning="quality of the speech itself, DNSMOS P.835, 1 to 5"),
        Term("dnsmos_bak", meaning="absence of background noise, DNSMOS P.835, 1 to 5"),
        Term("dnsmos_p808", meaning="overall quality, DNSMOS P.808, 1 to 5"),
    )

    def __init__(
        self,
        signal_background_overall: InferenceSession,
        overall: InferenceSession,
        windows: Callable[[NDArray[np.float32]], Windows],
    ) -> None:
        self._p835, self._p808, self._windows = signal_background_overall, overall, windows

    def prepare(self, request: SpeechRequest) -> None:
        """Nothing: every request can be judged."""

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        """Judge every clip; one that is silent or shorter than half a second is not judged."""
        return [self._judged(clip) for clip in clips]

    def _judged(self, clip: Clip) -> Judgement:
        reason = _obstacle(clip.pcm)
        if reason:
            return Judgement({term.name: float("nan") for term in self.terms}, {"not_judged": reason})
        windows = self._windows(np.clip(clip.pcm, -1.0, 1.0))
        rated = np.concatenate([_run(self._p835, window[None]) for window in windows]).astype(np.float64)
        scales = {"dnsmos": (OVERALL, 2), "dnsmos_sig": (SIGNAL, 0), "dnsmos_bak": (BACKGROUND, 1)}
        terms = {name: float(np.polyval(fit, rated[:, column]).mean()) for name, (fit, column) in scales.items()}
        mel = [_run(self._p808, mel_of(window)[None]) for window in windows]
        return Judgement(terms | {"dnsmos_p808": float(np.mean(mel))})


def load(device: torch.device, *, windows: str = "last", threads: int = 1) -> Rereader:
    """DNSMOS as a head. It runs on the CPU, whatever the device.

    Args:
        device: of the engine; not used.
        windows: "last" hears the last 9.01 s of a clip and costs the same for every clip; "all" averages one window a
            second from the front, as published figures do, for finished audio.
        threads: of the CPU, at most.

    Raises:
        ValueError: an option is not one of those.
        ModuleNotFoundError: `speechmos`, `onnxruntime` or `librosa` is not installed.
    """
    del device
    choices = {"last": last_window, "all": all_windows}
    if not isinstance(windows, str) or windows not in choices:
        raise ValueError(f"windows: {windows!r} is not known; allowed are {', '.join(choices)}")
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads: {threads!r} is not a whole number of at least 1")
    import onnxruntime

    mel_of(np.zeros(WINDOW, np.float32))  # librosa takes seconds to import when it is first used: not in a search
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    folder = files("speechmos") / "dnsmos_models"
    p835, p808 = (
        onnxruntime.InferenceSession((folder / file).read_bytes(), options, providers=["CPUExecutionProvider"])
        for file in ("sig_bak_ovr.onnx", "model_v8.onnx")
    )
    return Rereader(Dnsmos(p835, p808, choices[windows]))


def last_window(pcm: NDArray[np.float32]) -> Windows:
    """The last 9.01 s of a clip, or the clip repeated from its front; float32 [1, 144160]."""
    return pcm[None, -WINDOW:] if len(pcm) >= WINDOW else np.resize(pcm, (1, WINDOW))


def all_windows(pcm: NDArray[np.float32]) -> Windows:
    """The windows of `speechmos.dnsmos.run`, float32 [W, 144160].

    A short clip is doubled until it fills a window. Windows begin a second apart; those that rounding makes a sample
    short, which are the ones that begin at 7 to 23 s, are left out there and therefore here.
    """
    while len(pcm) < WINDOW:
        pcm = np.append(pcm, pcm)
    seconds = range(int(len(pcm) // SAMPLE_RATE - 9.01) + 1)
    kept = [second for second in seconds if int((second + 9.01) * SAMPLE_RATE) - second * SAMPLE_RATE == WINDOW]
    return np.stack([pcm[second * SAMPLE_RATE :][:WINDOW] for second in kept])


def mel_of(window: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the P.808 network hears: float32 [900, 120], decibels below the loudest, scaled to -1 to 1."""
    import librosa

    power = librosa.feature.melspectrogram(y=window[:-160], sr=SAMPLE_RATE, n_fft=321, hop_length=160, n_mels=120)
    level: NDArray[np.float32] = (librosa.power_to_db(power, ref=np.max).T + 40.0) / 40.0
    return level.astype(np.float32)


def _obstacle(pcm: NDArray[np.float32]) -> str:
    """Why a clip cannot be judged; empty where it can."""
    if len(pcm) < SHORTEST:
        return f"{len(pcm) / SAMPLE_RATE:.2f} s are too short; {SHORTEST / SAMPLE_RATE} s are needed"
    return "silent" if float(np.abs(pcm).max()) < SILENCE else ""


def _run(network: InferenceSession, heard: NDArray[np.float32]) -> NDArray[np.float32]:
    outputs: Any = network.run(None, {"input_1": heard})
    rated: NDArray[np.float32] = outputs[0]
    return rated
