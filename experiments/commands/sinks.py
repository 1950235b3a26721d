"""Where committed audio goes while a search runs: a WAV file, raw samples on standard output.

A sink takes float32 samples in order and knows nothing about sentences or searches.
"""

from __future__ import annotations

import os
import sys
import wave
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.commands.outcome import CommandError
from search.record import pcm16


class Sink(Protocol):
    """Takes audio as it becomes final; used in a `with` block, which it leaves when no more will come."""

    def write(self, audio: NDArray[np.float32]) -> None:
        """Append float32 [samples]."""

    def __enter__(self) -> object: ...

    def __exit__(self, *error: object) -> None: ...


class WavFile:
    """A 16-bit mono WAV file that is valid after every write, so that an end at any moment leaves what was committed.

    The file is created by the first write: a search that fails before it leaves an older file alone.
    """

    def __init__(self, path: Path, sample_rate: int) -> None:
        self.path, self._sample_rate = path, sample_rate
        self._open = ExitStack()
        self._wave: wave.Wave_write | None = None

    def write(self, audio: NDArray[np.float32]) -> None:
        """Append float32 [samples] and bring the header up to date."""
        if self._wave is None:
            self._file = self._open.enter_context(self.path.open("wb"))
            self._wave = self._open.enter_context(wave.Wave_write(self._file))
            self._wave.setparams((1, 2, self._sample_rate, 0, "NONE", "not compressed"))
        self._wave.writeframes(pcm16(audio))
        self._file.flush()

    def __enter__(self) -> WavFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


class RawOutput:
    """Little-endian 16-bit samples on standard output, flushed at every write."""

    def write(self, audio: NDArray[np.float32]) -> None:
        """Send float32 [samples] on. Raises `CommandError` when the reader has gone."""
        try:
            sys.stdout.buffer.write(pcm16(audio))
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            # Python flushes standard output once more at exit and would complain there again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise CommandError("-o -: the program that read the audio has ended") from error

    def __enter__(self) -> RawOutput:
        return self

    def __exit__(self, *error: object) -> None:
        pass  # standard output is not ours to close
