"""Whether a clip is spoken by one speaker: cosine of Resemblyzer's embeddings.

A request's reference is what a clip is compared with; without one it is the first second that the request committed, so
that a voice cannot drift. Knows no words, and finds a short clip less like its speaker than a long one: compare clips
of about one length.

The network's weights come from the `resemblyzer` package, which is read and never imported: it would import a detector
of silence that needs a compiler to install and `pkg_resources`, which newer releases of setuptools do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import soundfile
import soxr
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from scorers.heads import Clip, Judgement, Term
from scorers.rereader import Rereader
from search.request import SpeechRequest

SAMPLE_RATE = 16_000
HOP = 160
MELS = 40
WINDOW = 160
"""Hops that the network hears at once, 1.6 s."""

STEP = 77
"""Hops from one window's start to the next: 1.3 windows a second."""

COVERED = 0.75
"""A last window of which less is audio, not padding, is left out."""

SPAN = 4 * WINDOW * HOP
"""Samples that a clip is judged by: its last 6.4 s."""

OWN_REFERENCE = SAMPLE_RATE
"""Samples at the front of a request's audio that stand for its speaker where it brings no reference."""

SHORTEST = SAMPLE_RATE // 2
"""Half a second. The cosine of a speaker with itself grows with the clip: 0.73 here and 0.88 at 2 s, as measured."""

SILENCE = 1e-3
"""Audio whose loudest sample stays below is silent: -60 dB full scale."""

TOO_QUIET = 0.01
"""A window with less than this part of the loudest window's energy holds no speech to speak of."""

LEVEL = 10 ** (-30 / 20)
"""Root mean square, relative to full scale, that quieter audio is raised to."""

LEAST_WINDOWS = 8
"""In a batch. Products of fewer rows round differently, and a clip's figure would depend on its batch mates."""

Waveform = NDArray[np.float32]


class VoiceEncoder(nn.Module):
    """Resemblyzer's network: three LSTM layers, whose last state is projected (Wan et al., 2018, GE2E loss)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MELS, 256, num_layers=3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mel: Tensor) -> Tensor:
        """Unit vectors float32 [W, 256] of windows float32 [W, 160, 40]."""
        _, (hidden, _) = self.lstm(mel)
        return F.normalize(self.linear(hidden[-1]).relu(), dim=1)


class Speaker:
    """Compares voices; all windows of all clips go through the network together.

    Args:
        encoder: in evaluation mode, on the device where it runs. Mel spectra are made on the CPU.
    """

    name = "speaker"
    sample_rate = SAMPLE_RATE
    terms: tuple[Term, ...] = (
        Term("speaker", meaning="cosine to the speaker of the reference or of the first second, 0 to 1"),
    )

    def __init__(self, encoder: VoiceEncoder) -> None:
        self._encoder = encoder
        self.device = encoder.linear.weight.device

    def prepare(self, request: SpeechRequest) -> Tensor | None:
        """The reference's embedding, float32 [256]; `ValueError` for a reference without a voice to compare with."""
        if request.reference is None:
            return None
        pcm = reference_audio(request.reference)
        reason = _obstacle(pcm)
        if reason:
            raise ValueError(f"reference: {reason}; the speaker head needs speech")
        return self.embed([pcm])[0]

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        """Judge every clip that has something to be compared with, and half a second that is not silent."""
        parts = [_parts(clip) for clip in clips]
        heard = [pcm for pieces in parts if not isinstance(pieces, str) for pcm in pieces]
        embeddings = iter(self.embed(heard) if heard else ())
        found = []
        for clip, pieces in zip(clips, parts, strict=True):
            if isinstance(pieces, str):
                found.append(Judgement({"speaker": float("nan")}, {"not_judged": pieces}))
                continue
            mine = next(embeddings)
            known = next(embeddings) if clip.prepared is None else clip.prepared
            found.append(Judgement({"speaker": float(mine @ known)}))
        return found

    @torch.inference_mode()
    def embed(self, audio: Sequence[Waveform]) -> Tensor:
        """Unit vectors of voices, float32 [P, 256] on the CPU; `audio` float32 [S] each, at 16 kHz, not silent."""
        windows = [windows_of(pcm) for pcm in audio]
        counts = [len(some) for some in windows]
        missing = max(0, LEAST_WINDOWS - sum(counts))
        batch = np.concatenate([*windows, np.zeros((missing, WINDOW, MELS), np.float32)])
        voices = self._encoder(torch.from_numpy(batch).to(self.device)).cpu()[: sum(counts)]
        return F.normalize(torch.stack([some.mean(0) for some in voices.split(counts)]), dim=1)


def load(device: torch.device, *, weights: str | None = None) -> Rereader:
    """Resemblyzer as a head.

    Args:
        weights: a file in the format of the package's `pretrained.pt`; None takes the package's.

    Raises:
        ValueError: `weights` is no such file.
        ModuleNotFoundError: `resemblyzer` or `librosa` is not installed.
    """
    if weights is not None and not isinstance(weights, str | Path):
        raise ValueError(f"weights: {weights!r} is no path; give a file like resemblyzer's pretrained.pt")
    path = _shipped() if weights is None else Path(weights)
    if not path.is_file():
        raise ValueError(f"weights: {str(path)!r} is no file; give one like resemblyzer's pretrained.pt")
    encoder = VoiceEncoder()
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
        encoder.load_state_dict({name: stored[name] for name in encoder.state_dict()})
    except Exception as error:
        raise ValueError(
            f"weights: {str(path)!r} is not in the format of resemblyzer's pretrained.pt: {error}"
        ) from error
    windows_of(np.ones(1, np.float32))  # librosa takes seconds to import when it is first used: not in a search
    return Rereader(Speaker(encoder.to(device).eval()))


def reference_audio(reference: str | Path | tuple[NDArray[np.float32], int]) -> Waveform:
    """A request's reference as mono PCM at 16 kHz; `ValueError` where it cannot be read."""
    if isinstance(reference, tuple):
        pcm, rate = np.asarray(reference[0], np.float32), reference[1]
    else:
        try:
            pcm, rate = soundfile.read(str(reference), dtype="float32", always_2d=True)
        except (OSError, soundfile.SoundFileError) as error:
            raise ValueError(f"reference: {str(reference)!r} cannot be read: {error}") from error
        pcm = pcm.mean(1)
    if pcm.ndim != 1 or rate <= 0:
        raise ValueError(f"reference: samples of shape {pcm.shape} at {rate} Hz; give (pcm [samples], sample_rate)")
    if not np.isfinite(pcm).all():
        raise ValueError("reference: some samples are no finite numbers; give a clean recording")
    heard: Waveform = soxr.resample(pcm, rate, SAMPLE_RATE).astype(np.float32)
    return heard


def windows_of(pcm: Waveform) -> NDArray[np.float32]:
    """Mel power of Resemblyzer's partial utterances, 1.6 s long and 0.77 s apart: float32 [W, 160, 40], W at least 1.

    Zeros fill the last window. The level is raised as Resemblyzer does. Its detector of silence is not used: windows
    that are 20 dB below the loudest are left out instead.
    """
    import librosa

    root_mean_square = float(np.sqrt(np.mean(pcm**2)))
    starts = range(0, max(1, len(pcm) // HOP + 1 - WINDOW + STEP + 1), STEP)
    covered = (len(pcm) - starts[-1] * HOP) / (WINDOW * HOP)
    starts = starts[:-1] if covered < COVERED and len(starts) > 1 else starts
    padding = max(0, (starts[-1] + WINDOW) * HOP - len(pcm))
    level = np.pad(pcm * max(1.0, LEVEL / root_mean_square), (0, padding)).astype(np.float32)
    mel = librosa.feature.melspectrogram(y=level, sr=SAMPLE_RATE, n_fft=400, hop_length=HOP, n_mels=MELS)
    windows = np.stack([mel.T[start : start + WINDOW] for start in starts])
    energy = windows.sum((1, 2))
    loud: NDArray[np.float32] = windows[energy >= TOO_QUIET * energy.max()]
    return loud


def _parts(clip: Clip) -> list[Waveform] | str:
    """What to embed: the clip's end and, where the request has no reference, its first second; or why nothing."""
    pcm, known = clip.pcm, []
    if clip.prepared is None:
        if clip.committed < OWN_REFERENCE:
            return "no reference yet: the first second is not committed"
        known, pcm = [pcm[:OWN_REFERENCE]], pcm[OWN_REFERENCE:]
        if _obstacle(known[0]):
            return "no reference: the first second is silent"
    judged = pcm[-SPAN:]
    return _obstacle(judged) or [judged, *known]


def _obstacle(pcm: Waveform) -> str:
    """Why audio holds no voice to judge; empty where it may."""
    if len(pcm) < SHORTEST:
        return f"{len(pcm) / SAMPLE_RATE:.2f} s are too short; {SHORTEST / SAMPLE_RATE} s are needed"
    return "silent" if float(np.abs(pcm).max()) < SILENCE else ""


def _shipped() -> Path:
    """The weights in the `resemblyzer` package, found without importing it."""
    found = find_spec("resemblyzer")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'resemblyzer'", name="resemblyzer")
    return Path(found.origin).with_name("pretrained.pt")
