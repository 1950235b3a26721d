"""A small finished run of voices that need no weights, made in this process: for sites and for their way to the hub."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.judge.judge import Judge, judge_run, write_judgements
from experiments.sweep.store import RunStore
from experiments.sweep.study import expand, study_of
from experiments.sweep.tables import write_tables
from experiments.sweep.work import jobs_of, work
from scorers.registry import load_scorer

NASTY = '<script>alert("1")</script> & it\'s "over" | *so* _it_ goes'
PROMPTS = [
    {"id": "plain", "text": "It rains and we stay at home."},
    {"id": "a/b <i>", "text": NASTY},
    {"id": "foreign", "text": "Das geht nicht.", "language": "German"},  # the fake engine knows no languages
]


def made_run(folder: Path, *, losers: bool = True) -> Path:
    """A judged run of three prompts, two seeds and N of 1, 2 and 4 with a beam of 2; all units of one prompt failed."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    spec = study_of(
        {
            "name": "rain & <b>shine</b>",
            "engine": "fake",
            "scorer": "fake",
            "prompts": str(prompts),
            "seeds": [1, 2],
            "losers": losers,
            "settings": {"n": [1, 2, 4], "beam_width": 2},
        },
        "test",
    )
    # With N = 1 the beam is 1, whatever was asked for.
    units = expand(spec).units
    origin = {
        "command": "/bin/chunksearch sweep s.toml -o run --part 2/16 --resume",
        "commit": "0" * 40,
        "versions": {"torch": "2"},
    }
    store = RunStore.create(folder / "run", spec, units, {}, origin)
    for job in jobs_of(units, 1, losers=losers):
        work(store.folder, job)
    write_tables(store)
    judge = Judge.of("random", load_scorer("random"))
    assert len(list(judge_run(store, judge))) == 12
    write_judgements(store, judge)
    return store.folder
