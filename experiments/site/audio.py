"""Takes as FLAC and MP3, and all candidates of a take in one FLAC. Knows no pages.

FLAC holds the samples of the run bit by bit. MP3 begins with samples that its encoder needs; files say how many, and
players that read it (every browser does) leave them out.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

Samples = NDArray[np.int16]
LEAD_SECONDS = 1.0
"""Of what was final before a candidate: heard first, unless the listener does not want it."""

_MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_GAPLESS = slice(21, 24)  # behind the encoder's name: 12 bits of delay, 12 of padding


@dataclass(frozen=True)
class Sound:
    """What is known of one audio file, for the table of sums.

    Attributes:
        file: path in the site.
        sample_rate, samples: of what comes out when it is decoded.
        pcm_sha256: of the run's own 16-bit samples that it was made from, little-endian.
        delay_samples, padding_samples: what a decoder removes before and behind; 0 for FLAC.
    """

    file: str
    bytes: int
    sha256: str
    format: str
    sample_rate: int
    samples: int
    seconds: float
    pcm_sha256: str
    delay_samples: int = 0
    padding_samples: int = 0

    def plain(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def read_samples(path: Path) -> tuple[Samples, int]:
    """16-bit samples of a mono WAV file, and their rate."""
    found: Samples
    found, rate = soundfile.read(path, dtype="int16")
    return found, int(rate)


def write_flac(root: Path, name: str, pcm: Samples, rate: int) -> Sound:
    """Write `name`.flac below `root`."""
    content = _encoded(pcm, rate, "FLAC", "PCM_16")
    return _kept(root, f"{name}.flac", content, "flac", (rate, len(pcm)), pcm)


def write_mp3(root: Path, name: str, pcm: Samples, rate: int) -> Sound:
    """Write `name`.mp3 below `root`; where MP3 has no such rate, in the next that it has."""
    target = next((one for one in _MP3_RATES if one >= rate), _MP3_RATES[-1])
    heard = pcm if target == rate else _resampled(pcm, rate, target)
    content = _encoded(heard, target, "MP3", "MPEG_LAYER_III")
    found = _kept(root, f"{name}.mp3", content, "mp3", (target, len(heard)), pcm)
    place = content.find(b"LAME")
    gap = int.from_bytes(content[place:][_GAPLESS], "big") if place >= 0 else 0
    return Sound(**{**asdict(found), "delay_samples": gap >> 12, "padding_samples": gap & 0xFFF})


@dataclass(frozen=True)
class Stretch:
    """Where a candidate lies in the file of its take, in seconds: what came before it, itself, its end."""

    lead: float
    start: float
    end: float


def packed(winner: Samples, candidates: Sequence[tuple[int, Samples]], rate: int) -> tuple[Samples, list[Stretch]]:
    """All candidates of a take behind each other, each after what was final before it.

    Args:
        candidates: for each, the sample of the take at which it begins, and its samples.
    """
    parts: list[Samples] = []
    places: list[Stretch] = []
    length = 0
    for start, pcm in candidates:
        lead = winner[max(0, start - round(LEAD_SECONDS * rate)) : start]
        ends = (length, length + len(lead), length + len(lead) + len(pcm))
        places.append(Stretch(*(end / rate for end in ends)))
        parts += [lead, pcm]
        length = ends[-1]
    return np.concatenate(parts) if parts else np.zeros(0, np.int16), places


def pcm_sum(pcm: Samples) -> str:
    """SHA-256 of samples as little-endian bytes."""
    return hashlib.sha256(np.ascontiguousarray(pcm, dtype="<i2").tobytes()).hexdigest()


def _encoded(pcm: Samples, rate: int, form: str, subtype: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, pcm, rate, format=form, subtype=subtype)
    return file.getvalue()


def _kept(root: Path, file: str, content: bytes, form: str, decoded: tuple[int, int], pcm: Samples) -> Sound:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    rate, samples = decoded
    digest = hashlib.sha256(content).hexdigest()
    return Sound(file, len(content), digest, form, rate, samples, samples / rate, pcm_sum(pcm))


def _resampled(pcm: Samples, rate: int, target: int) -> Samples:
    """In floating point: of whole numbers, soxr dithers, and no two results are the same."""
    found = soxr.resample(pcm.astype(np.float32), rate, target)
    whole: Samples = np.clip(np.round(found), -32768, 32767).astype(np.int16)
    return whole
