"""Programs that play audio: which of them is installed, and feeding one while a search goes on.

Knows nothing about searches; it takes samples.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.commands.outcome import CommandError
from search.record import pcm16, write_wav


@dataclass(frozen=True)
class Player:
    """A program that plays audio.

    Attributes:
        name: of the program.
        arguments: for raw 16-bit mono samples on standard input, `{rate}` being the sample rate; None where the program
            only plays files.
    """

    name: str
    arguments: tuple[str, ...] | None


PLAYERS = (
    Player("paplay", ("--raw", "--format=s16le", "--channels=1", "--rate={rate}")),
    Player("aplay", ("-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "{rate}")),
    # One channel is what the s16le reader assumes; the option that would say so has another name in each ffmpeg.
    Player("ffplay", ("-loglevel", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar", "{rate}", "-i", "-")),
    Player("afplay", None),
    Player("play", ("-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", "{rate}", "-")),
)


def installed_players() -> list[Player]:
    """The players that exist on this machine, the preferred one first."""
    return [player for player in PLAYERS if shutil.which(player.name)]


class Playback:
    """Audio being played. Samples wait in a queue, so that the search never waits for the player.

    Leaving the `with` block raises `CommandError` if the player failed.
    """

    def __init__(self, player: Player, sample_rate: int) -> None:
        self._player, self._sample_rate = player, sample_rate
        self._waiting: queue.SimpleQueue[NDArray[np.float32] | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the playback
        self._feeder = threading.Thread(target=self._feed if player.arguments else self._play_file, daemon=True)
        if player.arguments:
            command = [player.name, *(part.format(rate=sample_rate) for part in player.arguments)]
            self._process = self._started(command, subprocess.PIPE)
        self._feeder.start()

    def write(self, audio: NDArray[np.float32]) -> None:
        """Play float32 [samples] after what is already waiting."""
        self._waiting.put(audio)

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait until all has been played, or, after an error, fall silent at once."""
        if error[0] is None:
            self._finish()
        else:
            self._stop()

    def _finish(self) -> None:
        self._waiting.put(None)
        self._feeder.join()
        code = self._process.wait() if self._process else 0
        self._errors.seek(0)
        complaint = self._errors.read().decode(errors="replace").strip().splitlines()
        self._errors.close()
        if code:
            reason = complaint[-1] if complaint else f"exit code {code}"
            raise CommandError(f"--play: {self._player.name} could not play the audio: {reason}")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
        self._waiting.put(None)
        self._feeder.join()

    def _started(self, command: list[str], standard_input: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=standard_input, stdout=subprocess.DEVNULL, stderr=self._errors)

    def _feed(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                while (audio := self._waiting.get()) is not None:
                    pipe.write(pcm16(audio))
                    pipe.flush()
        except BrokenPipeError:
            pass  # the player ended early; its exit code and its last words say why

    def _play_file(self) -> None:
        pieces: list[NDArray[np.float32]] = []
        while (audio := self._waiting.get()) is not None:
            pieces.append(audio)
        if pieces:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "speech.wav"
                write_wav(path, np.concatenate(pieces), self._sample_rate)
                self._process = self._started([self._player.name, str(path)], subprocess.DEVNULL)
                self._process.wait()
