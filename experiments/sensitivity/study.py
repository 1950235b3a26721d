"""Speaks takes, damages them, lets heads hear take and copies, and keeps what they find. Knows no statistics.

What was heard is kept in a file of JSON lines, by head and by the samples it heard, so that a stopped study goes on.
A head with new terms hears again. Other changes of a head are not seen: then the file has to go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from experiments.prompts import Prompt
from experiments.sensitivity.damages import DAMAGES, Take
from experiments.sensitivity.sound import SAMPLE_RATE, Pcm
from experiments.sensitivity.words import Span, word_spans
from scorers.heads import Head
from search import ChunkSearch, SearchResult, SpeechRequest

BABBLERS = 6
EARLY_SECONDS = 0.8
"""A beginning ends so long after the word that damages are about, one chunk of a search."""

LATEST = 0.65
"""Part of a take's samples before which that word ends."""

UNDAMAGED = "undamaged"
Found = dict[str, dict[str, float]]
"""Terms (`head.term`) by the name of a copy."""


@dataclass(frozen=True)
class Heard:
    """What one head found in one take and its copies, whole and unfinished."""

    take: str
    whole: Found
    early: Found


def takes_of(
    search: ChunkSearch, prompts: Sequence[Prompt], seed: int, note: Callable[[str], object] = lambda _: None
) -> list[Take]:
    """Speak every prompt, and once more with a word of the next one in it.

    Raises:
        ValueError: there are too few prompts for a babble.
    """
    if len(prompts) <= BABBLERS:
        raise ValueError(f"prompts: {len(prompts)} are too few; a babble needs {BABBLERS} others")
    results: list[SearchResult] = []
    for prompt in prompts:
        note(f"speaking {prompt.id}")
        results.append(search.generate(prompt.request(), n=1, seed=seed))
    spans = [word_spans(result.frames, prompt.text) for result, prompt in zip(results, prompts, strict=True)]
    chosen = [chosen_word(some, len(result.audio)) for some, result in zip(spans, results, strict=True)]
    takes = []
    for place, prompt in enumerate(prompts):
        note(f"speaking {prompt.id} with another word")
        others = [(place + step) % len(prompts) for step in range(1, BABBLERS + 1)]
        lender = next(one for one in others if _word(prompts[one], chosen[one]) != _word(prompt, chosen[place]))
        begin, end = spans[lender][chosen[lender]]
        audio = results[place].audio
        text = exchanged(prompt.text, chosen[place], _word(prompts[lender], chosen[lender]))
        takes.append(
            Take(
                id=f"{prompt.id}/{seed}",
                text=prompt.text,
                audio=audio,
                spans=spans[place],
                word=chosen[place],
                misread=search.generate(SpeechRequest(text=text, id=prompt.id), n=1, seed=seed).audio,
                foreign=results[lender].audio[begin:end],
                babble=np.sum([np.resize(results[one].audio, len(audio)) for one in others], axis=0, dtype=np.float32),
            )
        )
    return takes


def chosen_word(spans: Sequence[Span], samples: int) -> int:
    """The longest word that is not the first or the last and ends early enough; else the second."""
    places = [place for place in range(1, len(spans) - 1) if spans[place][1] <= LATEST * samples]
    return max(places, key=lambda place: spans[place][1] - spans[place][0], default=1)


def exchanged(text: str, place: int, word: str) -> str:
    """The text with another word at a place; punctuation around it stays."""
    words = text.split()
    bare = words[place].strip(".,!?;:")
    words[place] = words[place].replace(bare, word)
    return " ".join(words)


def copies_of(take: Take) -> dict[str, Pcm]:
    """The take and its damaged copies, by name."""
    return {UNDAMAGED: take.audio} | {damage.name: damage.make(take) for damage in DAMAGES}


def beginnings(take: Take, copies: dict[str, Pcm]) -> dict[str, Pcm]:
    """As much of each copy as a search would have when the word and another chunk have been said."""
    length = take.spans[take.word][1] + round(EARLY_SECONDS * SAMPLE_RATE)
    early = [UNDAMAGED, *(damage.name for damage in DAMAGES if damage.early is not None)]
    return {name: copies[name][:length] for name in early}


def listen(
    label: str,
    head: Head,
    takes: Sequence[Take],
    kept: Path,
    instruction: str | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> Iterator[Heard]:
    """What a head finds in every take, from `kept` or by listening; the reference is the next take of the same voice.

    `instruction` is for heads that compare the sound with words.

    Only heads that know the text hear the beginnings: to others, a beginning is only a shorter clip.
    """
    known = dict(_lines(kept))
    terms = {f"{label}.{term.name}" for term in head.terms}
    knows_text = f"{label}.prefix_wer" in terms
    for place, take in enumerate(takes):
        copies = copies_of(take)
        reference = takes[(place + 1) % len(takes)].audio
        key = digest(label + (instruction or ""), [*copies.values(), reference])
        if key not in known or not terms <= known[key]["whole"][UNDAMAGED].keys():
            note(f"{label} hears {take.id}")
            request = SpeechRequest(take.text, take.id, instruction=instruction, reference=(reference, SAMPLE_RATE))
            whole = scored(head, request, copies, finished=True)
            early = scored(head, request, beginnings(take, copies), finished=False) if knows_text else {}
            known[key] = {"whole": _labelled(label, whole), "early": _labelled(label, early)}
            with kept.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"key": key, "take": take.id, **known[key]}) + "\n")
        yield Heard(take.id, known[key]["whole"], known[key]["early"])


@torch.inference_mode()
def scored(head: Head, request: SpeechRequest, copies: dict[str, Pcm], finished: bool) -> Found:
    """Terms of every copy, each as a request of its own: nothing is compared within a candidate set."""
    audio = [torch.from_numpy(np.ascontiguousarray(pcm)) for pcm in copies.values()]
    pcm = torch.nn.utils.rnn.pad_sequence(audio, batch_first=True)
    stream = head.open([request] * len(audio), 1, SAMPLE_RATE, 1)
    try:
        lengths = torch.tensor([len(one) for one in audio])
        scores = stream.score(pcm, lengths, torch.full((len(audio),), finished))
    finally:
        stream.close()
    terms = {head.name: scores.reward} | scores.heads
    return {name: {term: float(values[row]) for term, values in terms.items()} for row, name in enumerate(copies)}


def digest(label: str, audio: Sequence[Pcm]) -> str:
    """Of a head's spec and samples."""
    sum_ = hashlib.blake2b(label.encode(), digest_size=16)
    for pcm in audio:
        sum_.update(np.ascontiguousarray(pcm).tobytes() + b"|")
    return sum_.hexdigest()


def _word(prompt: Prompt, place: int) -> str:
    return prompt.text.split()[place].strip(".,!?;:").lower()


def _labelled(label: str, found: Found) -> Found:
    return {copy: {f"{label}.{term}": value for term, value in terms.items()} for copy, terms in found.items()}


def _lines(kept: Path) -> Iterator[tuple[str, dict[str, Found]]]:
    if not kept.is_file():
        return
    for line in kept.read_text(encoding="utf-8").splitlines():
        try:
            read = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line that was being written when the study was stopped
        yield read["key"], {"whole": read["whole"], "early": read["early"]}
