"""Quality table of the built-in voice: plain sampling, search, and best of N, on sentences that no training saw.

Each utterance is judged once and kept in a file of JSON lines, so that a stopped evaluation goes on. It does not know
how a judge works, nor what the scorer that selects looks for.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from codec.builtin import codec
from engine.builtin import voice
from engine.registry import load_engine
from experiments.builtin.quality import digest, restore_lines, summarise, table
from experiments.builtin.resynthesis import Judges
from scorers.builtin import weights as listener
from scorers.registry import load_scorer
from scorers.text import NORMALISER, reference_of, word_errors
from search import ChunkSearch, SpeechRequest
from search.config import WHOLE_UTTERANCE

EVERYDAY = Path(__file__).parents[1] / "prompts" / "everyday.txt"
SHIPPED_WEIGHTS = (codec.SHIPPED / "model.safetensors", voice.SHIPPED / "model.safetensors", listener.WEIGHTS)
"""Takes of other weights are not resumed, nor pooled with these."""
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {"n": 1},
    "search": {"n": 8},
    "whole": {"n": 8, "chunk_frames": WHOLE_UTTERANCE},
}


def speak(
    search: ChunkSearch, sentence: str, configuration: str, settings: dict[str, Any], judges: Judges
) -> dict[str, Any]:
    """Speak one sentence and judge it; word errors are substitutions, deletions and insertions in spoken form."""
    # The id keys the random numbers: without one, all sentences would share their lucky and unlucky draws.
    request = SpeechRequest(text=sentence, id=sentence)
    result = search.generate(request, **CONFIGURATIONS[configuration], **settings)
    heard, said = judges.transcript(result.audio), reference_of(sentence)
    return {
        "configuration": configuration,
        "text": sentence,
        "heard": heard,
        "errors": word_errors(said, heard),
        "words": len(said.words),
        "mos": judges.quality(result.audio),
        "seconds": result.seconds,
        "status": result.status,
        "wall_seconds": result.performance["search_wall_seconds"],
        "first_commit_seconds": result.performance["first_commit_seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=Path, default=EVERYDAY, help="one sentence a line")
    parser.add_argument("--out", type=Path, default=Path("runs/builtin/quality"), help="folder of the results")
    parser.add_argument("--engine", default="builtin")
    parser.add_argument("--scorer", default="builtin")
    parser.add_argument("--whisper", type=Path, default=Path("base"), help="faster-whisper model: a name or a folder")
    parser.add_argument("--configurations", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS))
    parser.add_argument("--limit", type=int, default=None, help="only the first so many sentences")
    parser.add_argument("--seeds", type=int, nargs="+", default=[777], help="the table pools the takes of all of them")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--guidance", type=float, default=None, help="the engine's default where it is not given")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sentences = arguments.sentences.read_text(encoding="utf-8").splitlines()[: arguments.limit]
    settings = {"temperature": arguments.temperature, "guidance": arguments.guidance}
    with_choice = any(CONFIGURATIONS[name]["n"] > 1 for name in arguments.configurations)
    scorer = load_scorer(arguments.scorer) if with_choice else None
    search = ChunkSearch(load_engine(arguments.engine), scorer)
    judges = Judges(arguments.whisper, arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "utterances.jsonl"
    names = {"engine": arguments.engine, "scorer": arguments.scorer, "normaliser": f"{NORMALISER}, English"}
    run = {**names, "weights": digest(SHIPPED_WEIGHTS), **settings}
    judged = [one for one in restore_lines(path) if one["run"] == run]
    done = {(one["configuration"], one["seed"], one["text"]) for one in judged}
    search.generate(SpeechRequest(text=sentences[0]), n=1)  # the first call pays for memory and caches
    takes = itertools.product(arguments.seeds, arguments.configurations, sentences)
    with path.open("a", encoding="utf-8") as lines:
        for seed, name, sentence in takes:
            if (name, seed, sentence) in done:
                continue
            found = {"run": run, "seed": seed, **speak(search, sentence, name, {"seed": seed, **settings}, judges)}
            judged.append(found)
            lines.write(json.dumps(found) + "\n")
            lines.flush()
            print(f"{name} {found['errors']}/{found['words']} {found['heard']!r}", file=sys.stderr)
    asked = [one for one in judged if one["seed"] in arguments.seeds and one["text"] in set(sentences)]
    rows = [
        summarise(name, [one for one in asked if one["configuration"] == name]) for name in arguments.configurations
    ]
    summary = {"run": run, "seeds": arguments.seeds, "rows": [asdict(row) for row in rows]}
    (arguments.out / "quality.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
