"""Recordings that a voice is to imitate, from a file or from memory. It does not know what a codec makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, eq=False)
class Recording:
    """Sound as it was recorded: float32 `[samples]` or `[channels, samples]`, full scale at 1, and its rate in Hz."""

    pcm: np.ndarray
    sample_rate: int

    @classmethod
    def of(cls, reference: str | Path | tuple[np.ndarray, int]) -> Recording:
        """What `SpeechRequest.reference` holds; a path is read with the `soundfile` package.

        Raises:
            ValueError: there is no such file, it holds no sound, or the package is not installed.
        """
        if isinstance(reference, (str, Path)):
            return cls._read(Path(reference).expanduser())
        if not isinstance(reference, tuple) or len(reference) != 2:
            raise ValueError(f"reference: a {type(reference).__name__}; give a path, or (pcm, sample_rate in Hz)")
        pcm, rate = np.asarray(reference[0]), int(reference[1])
        if not np.issubdtype(pcm.dtype, np.floating):
            raise ValueError(f"reference: samples are {pcm.dtype}; give floats with full scale at 1")
        return cls(pcm.astype(np.float32, copy=False), rate)

    @classmethod
    def _read(cls, path: Path) -> Recording:
        if not path.is_file():
            raise ValueError(f"reference: {str(path)!r} is no file")
        try:
            import soundfile
        except ImportError:
            raise ValueError(
                f"reference: reading {str(path)!r} needs the package soundfile: pip install soundfile, "
                "or give (pcm, sample_rate)"
            ) from None
        try:
            pcm, rate = soundfile.read(path, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise ValueError(f"reference: {str(path)!r} is no readable recording ({error})") from None
        return cls(np.ascontiguousarray(pcm.T), int(rate))
