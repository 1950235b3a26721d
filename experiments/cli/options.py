"""Options that several commands have, each said once. Knows no command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
Scorer = Annotated[
    str, typer.Option("--scorer", help="A reward by name or TOML file, or one head: its kind, or kind:model.")
]
Device = Annotated[str | None, typer.Option("--device", help="Of the engine, such as cuda:0; else the CPU.")]
ScorerDevice = Annotated[
    str | None, typer.Option("--scorer-device", help="Of the scorer, such as cuda:1; else the CPU.")
]
Instruction = Annotated[str | None, typer.Option("--instruction", help="How it is to be said; style is judged by it.")]
Language = Annotated[str | None, typer.Option("--language", help="English name of the language, such as German.")]
Reference = Annotated[Path | None, typer.Option("--reference", metavar="AUDIO", help="A recording of the voice.")]
ScorersDevice = Annotated[str | None, typer.Option("--device", help="Of the scorer, such as cuda:1; else the CPU.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a sweep.")]
