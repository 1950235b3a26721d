"""`python -m experiments.sensitivity`: speak, damage, score, and write tables and a heat map into a folder."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import torch

from engine.registry import load_engine
from experiments.prompts import read_prompts
from experiments.sensitivity.damages import DAMAGES
from experiments.sensitivity.plot import heat_map
from experiments.sensitivity.study import Heard, listen, takes_of
from experiments.sensitivity.table import Effect, answers, effects, grid, liked
from scorers.heads import Head
from scorers.registry import load_scorer
from search import ChunkSearch

HEADS = ("listener", "whisper:base", "naturalness", "speaker")
MAIN_TERMS = (
    "listener.listener",
    "whisper.prefix_wer",
    "whisper.confidence",
    "naturalness.dnsmos",
    "naturalness.dnsmos_sig",
    "naturalness.dnsmos_bak",
    "naturalness.dnsmos_p808",
    "speaker.speaker",
)
"""Of the heads that come with real weights; of others, all terms are shown."""

EARLY_TERMS = ("listener.listener", "whisper.prefix_wer", "whisper.words_behind", "whisper.confidence")


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    prompts = read_prompts(arguments.set)[: arguments.prompts]
    heads: dict[str, Head] = {}
    for spec in arguments.heads:
        head = load_scorer(spec)
        if head.name in heads:
            sys.exit(f"--heads: two are called {head.name!r}; give the second another file name")
        heads[head.name] = head  # type: ignore[assignment]  # what the registry loads names its terms
    search = ChunkSearch(load_engine("builtin"))
    takes = [take for seed in arguments.seeds for take in takes_of(search, prompts, seed, _note)]
    arguments.work.mkdir(parents=True, exist_ok=True)
    kept = arguments.work / "heard.jsonl"
    found: list[Effect] = []
    for name, head in heads.items():
        found += _effects(name, head, list(listen(name, head, takes, kept, arguments.instruction, _note)))
    arguments.out.mkdir(parents=True, exist_ok=True)
    _write_csv(arguments.out / "sensitivity.csv", found)
    ours = set(MAIN_TERMS) | set(EARLY_TERMS)
    others = [term for term in dict.fromkeys(one.term for one in found) if term.partition(".")[0] not in _labels(ours)]
    whole = [term for term in MAIN_TERMS if any(one.term == term for one in found)] + others
    early = [term for term in EARLY_TERMS if any(one.term == term for one in found)]
    (arguments.out / "sensitivity.svg").write_text(heat_map(DAMAGES, found, whole), encoding="utf-8")
    (arguments.out / "sensitivity.md").write_text(_page(len(takes), found, whole, early), encoding="utf-8")
    print(answers(DAMAGES, found))


def _page(takes: int, found: Sequence[Effect], whole: Sequence[str], early: Sequence[str]) -> str:
    """The tables as a Markdown page."""
    cells = "Each cell: drop in standard deviations of undamaged takes (share of takes whose copy is below)."
    parts = [
        "# What each head hears",
        f"{takes} takes of the built-in voice; written by `python -m experiments.sensitivity`.",
        "## Right answers",
        answers(DAMAGES, found),
        "## Whole takes",
        cells,
        grid(DAMAGES, found, whole),
        "## Beginnings that are not finished",
        cells,
        grid(DAMAGES, found, early, "beginning"),
        "## Damages that a term likes",
        liked(DAMAGES, found, [*whole, *early]) or "None.",
    ]
    return "\n\n".join(parts) + "\n"


def _effects(name: str, head: Head, heard: Sequence[Heard]) -> list[Effect]:
    signs = {f"{name}.{head.name}": 1.0} | {f"{name}.{term.name}": term.sign for term in head.terms}
    whole = effects(DAMAGES, [one.whole for one in heard], signs)
    early = effects(DAMAGES, [one.early for one in heard], signs, "beginning") if heard[0].early else []
    return whole + early


def _write_csv(path: Path, found: Sequence[Effect]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        names = [field.name for field in fields(Effect)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for one in found:
            row = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in asdict(one).items()}
            writer.writerow(row)


def _labels(terms: set[str]) -> set[str]:
    return {term.partition(".")[0] for term in terms}


def _note(what: str) -> None:
    print(what, file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.sensitivity", description=__doc__)
    parser.add_argument("--set", default="everyday", help="prompts: a set that comes along, or a file")
    parser.add_argument("--prompts", type=int, default=30, help="only the first so many")
    parser.add_argument("--seeds", type=int, nargs="+", default=[777])
    parser.add_argument("--heads", nargs="+", default=HEADS, help="heads, or TOML files with heads that need options")
    parser.add_argument("--instruction", help="of all takes, for heads that compare the sound with words")
    parser.add_argument("--work", type=Path, default=Path("runs/sensitivity"), help="what was heard, to go on from")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/scorers"), help="folder of table and plot")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
