"""Training speech for the listener: log-mel hops with what is said in them and when, cut and joined at word boundaries.

One layout for all sources (teacher, codec, language model samples), so that a clip is joined from any of them. It does
not know a network; it knows that a recogniser must not learn which words follow each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from scorers.builtin.features import HOPS_PER_STEP, MELS
from scorers.builtin.symbols import CLASSES, class_of

SPACE = 16  # symbol id of the gap between words
STRESS = (156, 157)
SILENT = float(np.log(1e-5))
CLIP_STEPS = 300  # of 20 ms
CLIP_HOPS = CLIP_STEPS * HOPS_PER_STEP
EARLY_HOPS, LATE_HOPS = 3, 12  # a sound may be reported from a little before its start to 120 ms after its end
FRAME_LABEL_DELAY = 4  # hops that the framewise target lags behind the sound

Hops = NDArray[np.float16]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Clips:
    """Many utterances, flat with offsets.

    Attributes:
        mel: float16 [hops, 80]. hop_offsets: int64 [U + 1].
        sounds: int64 [P], classes. starts, ends: int64 [P], in hops from the utterance's first.
        cuts: int64 [K], hops between words. cut_offsets: int64 [U + 1].
    """

    mel: Hops
    hop_offsets: Numbers
    sounds: Numbers
    starts: Numbers
    ends: Numbers
    sound_offsets: Numbers
    cuts: Numbers
    cut_offsets: Numbers

    def __len__(self) -> int:
        return len(self.hop_offsets) - 1

    def save(self, path: Path) -> None:
        """Write all arrays to one file."""
        save_file(vars(self), str(path))

    @classmethod
    def load(cls, path: Path) -> "Clips":
        """Read what `save` wrote."""
        return cls(**load_file(str(path)))


@dataclass(frozen=True)
class Utterance:
    """One utterance, or a part of one: `mel` [hops, 80], and its sounds with their hops."""

    mel: Hops
    sounds: Numbers
    starts: Numbers
    ends: Numbers


def timed_sounds(symbols: Sequence[int], ends: Sequence[float]) -> tuple[list[tuple[int, float, float]], list[float]]:
    """(class, start, end) of each sound and the middles of the gaps between words, from symbols and where they end.

    A stress mark takes time in the teacher's durations: it belongs to the vowel that follows.
    """
    sounds: list[tuple[int, float, float]] = []
    cuts: list[float] = []
    begin = previous = 0.0
    for symbol, end in zip(symbols, ends, strict=True):
        if symbol in STRESS:
            previous = end
            continue
        if found := class_of(symbol):
            sounds.append((found, begin, end))
        elif symbol == SPACE:
            cuts.append((previous + end) / 2)
        begin = previous = end
    return sounds, cuts


def gather(utterances: Sequence[tuple[Hops, list[tuple[int, float, float]], list[float]]]) -> Clips:
    """Clips from (mel, timed sounds, cuts) of each utterance."""

    def offsets(lengths: Sequence[int]) -> Numbers:
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    sounds = [sound for _, timed, _ in utterances for sound in timed]
    return Clips(
        mel=np.concatenate([mel for mel, _, _ in utterances]),
        hop_offsets=offsets([len(mel) for mel, _, _ in utterances]),
        sounds=np.asarray([found for found, _, _ in sounds], np.int64),
        starts=np.asarray([start for _, start, _ in sounds], np.int64),
        ends=np.asarray([end for _, _, end in sounds], np.int64),
        sound_offsets=offsets([len(timed) for _, timed, _ in utterances]),
        cuts=np.asarray([cut for _, _, cuts in utterances for cut in cuts], np.int64),
        cut_offsets=offsets([len(cuts) for _, _, cuts in utterances]),
    )


def teacher_clips(path: Path) -> Clips:
    """One shard of the `speech` stage. Its mel hops are the listener's own features."""
    stored = load_file(str(path))
    hops, symbols = stored["hop_offsets"], stored["symbol_offsets"]
    utterances = []
    for place in range(len(hops) - 1):
        part = slice(symbols[place], symbols[place + 1])
        timed, cuts = timed_sounds(stored["symbols"][part].tolist(), stored["symbol_ends"][part].tolist())
        utterances.append((stored["mel"][hops[place] : hops[place + 1]], timed, cuts))
    return gather(utterances)


def symbol_seconds(paths: Sequence[Path]) -> NDArray[np.float32]:
    """Mean seconds of each symbol (float32 [180]) in the teacher's shards; 0 where a symbol never occurs."""
    total, count = np.zeros(180), np.zeros(180)
    for path in paths:
        stored = load_file(str(path))
        starts = np.concatenate([[0.0], stored["symbol_ends"][:-1]])
        starts[stored["symbol_offsets"][:-1]] = 0.0
        np.add.at(total, stored["symbols"], (stored["symbol_ends"] - starts) * 0.01)
        np.add.at(count, stored["symbols"], 1)
    return (total / np.maximum(count, 1)).astype(np.float32)


def whole(clips: Clips, place: int) -> Utterance:
    """Utterance `place`."""
    hops = slice(clips.hop_offsets[place], clips.hop_offsets[place + 1])
    part = slice(clips.sound_offsets[place], clips.sound_offsets[place + 1])
    return Utterance(clips.mel[hops], clips.sounds[part], clips.starts[part], clips.ends[part])


def excerpt(clips: Clips, place: int, rng: np.random.Generator, longest: int) -> Utterance:
    """A part of an utterance between two gaps (or all of it), at most about `longest` hops."""
    full = whole(clips, place)
    inner = clips.cuts[clips.cut_offsets[place] : clips.cut_offsets[place + 1]]
    borders = np.concatenate([[0], inner, [len(full.mel)]])
    first = int(rng.integers(0, len(borders) - 1))
    last = int(rng.integers(first + 1, len(borders)))
    if rng.random() < 0.4:
        first, last = 0, len(borders) - 1
    while last > first + 1 and borders[last] - borders[first] > longest:
        last -= 1
    start, stop = int(borders[first]), int(borders[last])
    inside = (full.starts >= start) & (full.ends <= stop + 1)
    return Utterance(full.mel[start:stop], full.sounds[inside], full.starts[inside] - start, full.ends[inside] - start)


def varied(piece: Utterance, rng: np.random.Generator) -> Utterance:
    """The piece at another pace, loudness and colour, sometimes in noise."""
    mel = piece.mel.astype(np.float32)
    pace = float(rng.uniform(0.85, 1.2))
    count = max(2, round(len(mel) * pace))
    place = np.linspace(0, len(mel) - 1, count)
    left = np.minimum(place.astype(np.int64), max(0, len(mel) - 2))
    share = (place - left)[:, None].astype(np.float32)
    mel = mel[left] * (1 - share) + mel[np.minimum(left + 1, len(mel) - 1)] * share
    if rng.random() < 0.4:
        band = np.clip(np.arange(MELS) * rng.uniform(0.96, 1.04), 0, MELS - 1)
        low = np.minimum(band.astype(np.int64), MELS - 2)
        part = (band - low).astype(np.float32)
        mel = mel[:, low] * (1 - part) + mel[:, low + 1] * part
    mel = mel + np.float32(rng.uniform(-0.7, 0.5))
    mel += (np.linspace(-1, 1, MELS) * rng.normal(0, 0.25)).astype(np.float32)
    if rng.random() < 0.3:
        hiss = rng.uniform(-10, -6.5) + rng.normal(0, 0.35, mel.shape)
        mel = np.logaddexp(mel, hiss.astype(np.float32))
    if rng.random() < 0.3:
        width, lowest = int(rng.integers(2, 10)), int(rng.integers(0, MELS - 10))
        mel[:, lowest : lowest + width] = mel[:, lowest : lowest + width].mean()
    mel = np.maximum(mel, SILENT)
    ratio = count / len(piece.mel)
    return Utterance(mel, piece.sounds, (piece.starts * ratio).astype(np.int64), (piece.ends * ratio).astype(np.int64))


@dataclass(frozen=True)
class Batch:
    """Joined clips as the network wants them.

    Attributes:
        features: float32 [R, T, 160].
        sounds: int64 [sum of counts]; counts: int64 [R].
        allowed: bool [R, T, CLASSES], where each class may be reported.
        frames: int64 [R, T], the sound of each step, FRAME_LABEL_DELAY hops late; 0 where there is none.
    """

    features: NDArray[np.float32]
    sounds: Numbers
    counts: Numbers
    allowed: NDArray[np.bool_]
    frames: Numbers


def joined(sources: Sequence[Clips], shares: Sequence[float], rows: int, rng: np.random.Generator) -> Batch:
    """Clips of CLIP_STEPS steps, each joined from excerpts of sources drawn by their shares, with silences between."""
    mels = np.full((rows, CLIP_HOPS, MELS), SILENT, np.float32)
    allowed = np.zeros((rows, CLIP_STEPS, CLASSES), bool)
    allowed[:, :, 0] = True
    hops = np.zeros((rows, CLIP_HOPS), np.int64)
    sounds: list[Numbers] = []
    counts = np.zeros(rows, np.int64)
    for row in range(rows):
        at = 0
        while at < CLIP_HOPS - 60:
            if rng.random() < 0.3:
                at += int(rng.integers(1, 40))
            clips = sources[int(rng.choice(len(sources), p=shares))]
            room = int((CLIP_HOPS - at) / 1.2)
            piece = varied(excerpt(clips, int(rng.integers(len(clips))), rng, room), rng)
            if at + len(piece.mel) > CLIP_HOPS:
                break
            mels[row, at : at + len(piece.mel)] = piece.mel
            for sound, start, end in zip(piece.sounds, piece.starts + at, piece.ends + at, strict=True):
                first, last = max(0, start - EARLY_HOPS) // HOPS_PER_STEP, (end + LATE_HOPS) // HOPS_PER_STEP
                allowed[row, first : last + 1, sound] = True
                hops[row, start + FRAME_LABEL_DELAY : end + FRAME_LABEL_DELAY] = sound
            sounds.append(piece.sounds)
            counts[row] += len(piece.sounds)
            at += len(piece.mel)
    return Batch(
        mels.reshape(rows, CLIP_STEPS, HOPS_PER_STEP * MELS),
        np.concatenate(sounds) if sounds else np.zeros(0, np.int64),
        counts,
        allowed,
        hops[:, ::HOPS_PER_STEP],
    )
