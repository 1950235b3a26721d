"""Programs that play audio: which of them is installed, and feeding one while a search goes on.

Knows nothing about searches; it takes samples.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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
    """Audio being played. Samples wait in a queue, so that the search never waits for a player.

    Where a player fails, the next one plays everything from the beginning: most fail before the first sound, for want
    of a server or a device. Leaving the `with` block raises `CommandError` if all of them failed.
    """

    def __init__(self, players: Sequence[Player], sample_rate: int) -> None:
        self._players, self._sample_rate = players, sample_rate
        self._waiting: queue.SimpleQueue[NDArray[np.float32] | None] = queue.SimpleQueue()
        self._heard: list[NDArray[np.float32]] = []
        self._ended = False
        self._failures: list[str] = []
        self._silenced = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._feeder = threading.Thread(target=self._play, daemon=True)
        self._feeder.start()

    def write(self, audio: NDArray[np.float32]) -> None:
        """Play float32 [samples] after what is already waiting."""
        self._waiting.put(audio)

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait until all has been played, or, after an error, fall silent at once."""
        if error[0] is not None:
            self._silenced.set()
            if self._process is not None:
                self._process.terminate()
        self._waiting.put(None)
        self._feeder.join()
        if error[0] is None and len(self._failures) == len(self._players):
            raise CommandError(f"--play: {'; '.join(self._failures)}")

    def _play(self) -> None:
        for player in self._players:
            failure = self._failure(player)
            if not failure or self._silenced.is_set():
                return
            self._failures.append(f"{player.name} could not play the audio: {failure}")

    def _failure(self, player: Player) -> str:
        """Why a player could not play; empty when it has played everything."""
        with tempfile.TemporaryFile() as errors:
            try:
                code = self._streamed(player, errors) if player.arguments else self._from_file(player, errors)
            except OSError as error:
                return error.strerror or str(error)
            errors.seek(0)
            complaint = errors.read().decode(errors="replace").strip().splitlines()
        if not code:
            return ""
        return complaint[-1] if complaint else f"exit code {code}"

    def _streamed(self, player: Player, errors: IO[bytes]) -> int:
        arguments = [part.format(rate=self._sample_rate) for part in player.arguments or ()]
        process = self._started([player.name, *arguments], errors)
        assert process.stdin is not None
        try:
            with process.stdin as pipe:
                for audio in self._audio():
                    pipe.write(pcm16(audio))
                    pipe.flush()
        except BrokenPipeError:
            pass  # the player ended early; its exit code and its last words say why
        return process.wait()

    def _from_file(self, player: Player, errors: IO[bytes]) -> int:
        pieces = list(self._audio())
        if not pieces:
            return 0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "speech.wav"
            write_wav(path, np.concatenate(pieces), self._sample_rate)
            return self._started([player.name, str(path)], errors).wait()

    def _audio(self) -> Iterator[NDArray[np.float32]]:
        """All audio from the beginning, the later pieces as they come."""
        yield from self._heard
        while not self._ended:
            audio = self._waiting.get()
            if audio is None:
                self._ended = True
            else:
                self._heard.append(audio)
                yield audio

    def _started(self, command: list[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        if self._silenced.is_set():  # while it was starting
            self._process.terminate()
        return self._process
