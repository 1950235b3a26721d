"""The `chunksearch` program: its commands, and how every command ends.

Parses and dispatches. What a command does is in `experiments/commands/`; nothing here knows engines or audio.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Sequence

import typer
from rich.console import Console

from experiments.cli import checks, speech, studies
from experiments.commands.outcome import DONE, FAILED, Outcome, outcome_of
from search.record import json_ready

HEAD = "head"
"""The name of the threads of `scorers/head_thread.py`, which is not imported for it: it would cost a second."""

app = typer.Typer(
    name="chunksearch",
    help="Speak with search: sample several candidates, keep the best every chunk, and play what will not change.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (speech.app, studies.app, checks.app):
    app.add_typer(part)


def run(arguments: Sequence[str]) -> int:
    """Run the program; returns its exit code.

    0 done, 1 something failed, 2 bad input, 3 a take hit its frame limit and `--strict` asked to know.
    """
    arguments = list(arguments) or ["--help"]
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    try:
        outcome = app(arguments, prog_name="chunksearch", standalone_mode=False)
    except typer.Abort:
        outcome = Outcome(FAILED, error="interrupted")
    except Exception as error:
        if "--debug" in options:
            traceback.print_exc()
        outcome = outcome_of(error)
    if outcome == 130:  # what the parser returns when Ctrl-C reaches it
        outcome = Outcome(FAILED, error="interrupted")
    if not isinstance(outcome, Outcome):  # help was printed
        return DONE
    if outcome.error:
        notes = Console(stderr=True, highlight=False, soft_wrap=True)
        notes.print(f"chunksearch: {outcome.error}", style="red", markup=False)
    if "--json" in options:
        status = {"status": "failed", "error": outcome.error} if outcome.error else {}
        print(json.dumps(json_ready({"exit_code": outcome.code, **status, **outcome.data}), ensure_ascii=False))
    return outcome.code


def main() -> None:
    """Entry point of the command."""
    code = run(sys.argv[1:])
    if any(thread.name == HEAD for thread in threading.enumerate()):
        # A late head cannot be stopped, and one that computes on while the interpreter is taken down crashes it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
