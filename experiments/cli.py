"""The `chunksearch` program: its commands and options, and how every command ends.

Parses and dispatches. What a command does is in `experiments/commands/`; nothing here knows engines or audio.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.commands.outcome import DONE, FAILED, Outcome, outcome_of
from search.record import json_ready

app = typer.Typer(
    name="chunksearch",
    help="Speak with search: sample several candidates, keep the best every chunk, and play what will not change.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

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


@app.command()
def say(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from standard input.")],
    n: Annotated[int, typer.Option("-n", "--candidates", help="Candidates, 1 to 64; 1 is plain sampling.")] = 8,
    beam_width: Annotated[int, typer.Option("--beam-width", help="Candidates kept at each selection.")] = 1,
    chunk_ms: Annotated[float, typer.Option("--chunk-ms", help="Audio between two selections.")] = 800.0,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same audio.")] = 777,
    engine: Annotated[str, typer.Option("--engine", help="A name, or kind:path.")] = "builtin",
    scorer: Scorer = "builtin",
    device: Device = None,
    scorer_device: ScorerDevice = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Of the engine's weights: float32, bfloat16 or float16.")
    ] = None,
    instruction: Instruction = None,
    language: Language = None,
    reference: Reference = None,
    guidance: Annotated[
        float | None, typer.Option("--guidance", help="Classifier-free guidance, 1 is none; else the engine decides.")
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="0 is greedy.")] = 1.0,
    stop_bias: Annotated[float, typer.Option("--stop-bias", help="Above 0, candidates go on for longer.")] = 0.0,
    min_seconds: Annotated[float, typer.Option("--min-seconds", help="No candidate may end before.")] = 0.0,
    max_lag: Annotated[
        float | None,
        typer.Option("--max-lag", help="Seconds of audio that may wait while beams disagree; else no limit."),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", help="Longest audio of a sentence, up to 60; else by its text."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="WAV",
            help="Where the audio goes; - writes raw 16-bit samples to standard output as they become final. "
            "Else speech.wav, or no file with --play or --report.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Keep all candidates, step records and a page to compare them."),
    ] = None,
    play: Annotated[bool, typer.Option("--play", help="Play the audio while it is found.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 when a take hit its frame limit.")] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001 - read from the arguments by `run`, which sees every error
) -> Outcome:
    """Speak a text, sentence by sentence, with reward-guided search."""
    from experiments.commands import say as command

    options = command.Options(
        text=text,
        settings={
            "n": n,
            "beam_width": beam_width,
            "seed": seed,
            "guidance": guidance,
            "temperature": temperature,
            "max_lag_seconds": max_lag,
            "max_seconds": max_seconds,
            "stop_bias": stop_bias,
            "min_seconds": min_seconds,
        },
        chunk_ms=chunk_ms,
        engine=engine,
        scorer=scorer,
        devices=command.Devices(device, scorer_device, dtype),
        manner={"instruction": instruction, "language": language, "reference": reference},
        output=output,
        report=report,
        play=play,
        strict=strict,
        as_json=as_json,
    )
    return command.run(options)


@app.command()
def score(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Audio; several are candidates of one text.")],
    text: Annotated[str, typer.Option("--text", help="What should have been said.")],
    scorer: Scorer = "builtin",
    device: Annotated[str | None, typer.Option("--device", help="Of the scorer, such as cuda:1; else the CPU.")] = None,
    instruction: Instruction = None,
    language: Language = None,
    reference: Reference = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Let a scorer hear audio files; prints every raw term and the reward."""
    from experiments.commands import score as command

    request = {"text": text, "instruction": instruction, "language": language, "reference": reference}
    return command.run(command.Options(files, scorer, device, request, as_json))


@app.command()
def sweep(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY.toml]", help="What to run; options stand in the place of its keys.")
    ] = None,
    n: Annotated[str | None, typer.Option("--n", help="Candidates, such as 1,2,4,8.")] = None,
    beam_width: Annotated[str | None, typer.Option("--beam-width", help="Such as 1,2.")] = None,
    chunk_ms: Annotated[str | None, typer.Option("--chunk-ms", help="Such as 800,1600,whole.")] = None,
    temperature: Annotated[str | None, typer.Option("--temperature", help="Such as 0.8,1.0.")] = None,
    guidance: Annotated[str | None, typer.Option("--guidance", help="Such as 1,1.5,3.")] = None,
    engine: Annotated[str | None, typer.Option("--engine", help="Specs, separated by commas.")] = None,
    scorer: Annotated[str | None, typer.Option("--scorer", help="Specs, separated by commas.")] = None,
    prompts: Annotated[
        str | None, typer.Option("--prompts", help="everyday, hard, or files, separated by commas.")
    ] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Such as 777,778.")] = None,
    losers: Annotated[bool | None, typer.Option("--losers/--no-losers", help="Keep all candidates' audio.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Prompts that are spoken in one batch.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="The run's folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and stop.")] = False,
    executor: Annotated[str, typer.Option("--executor", help="local (processes) or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; else one a core, or one on a GPU.")
    ] = None,
    part: Annotated[str | None, typer.Option("--part", help="Run a part only, such as 3/16: for job arrays.")] = None,
    device: Device = None,
    scorer_device: ScorerDevice = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Run many searches: all combinations of settings, prompts and seeds, kept so that nothing is lost."""
    from experiments.commands import sweep as command

    written = command.typed(
        settings={
            "n": n,
            "beam_width": beam_width,
            "chunk_ms": chunk_ms,
            "temperature": temperature,
            "guidance": guidance,
        },
        lists={"engine": engine, "scorer": scorer, "prompts": prompts, "seeds": seeds},
        plain={"losers": losers, "batch": batch},
    )
    return command.run(
        command.Options(
            study, written, output, resume, dry_run, executor, workers, part, device, scorer_device, as_json
        )
    )


@app.command()
def judge(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a sweep.")],
    scorer: Scorer,
    device: Annotated[str | None, typer.Option("--device", help="Of the scorer, such as cuda:1; else the CPU.")] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Let a scorer that took no part in a sweep hear what it chose; takes up where it was stopped."""
    from experiments.commands import judge as command

    return command.run(command.Options(run_folder, scorer, device, as_json))


@app.command()
def study(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a sweep.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where the site goes.")],
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Make a static site of a sweep: what may be concluded, plots, tables, and every take to hear."""
    from experiments.commands import study as command

    return command.run(command.Options(run_folder, output, as_json))


@app.command()
def publish(
    site: Annotated[Path, typer.Argument(metavar="SITE", help="A folder that `study` made.")],
    repo: Annotated[str, typer.Option("--repo", metavar="USER/NAME", help="Where it goes on the Hugging Face hub.")],
    kind: Annotated[str, typer.Option("--type", help="dataset or space.")] = "dataset",
    private: Annotated[bool, typer.Option("--private", help="Only you can see it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the commits, and send nothing.")] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Upload a site in few, large commits; takes up where it was stopped."""
    from experiments.commands import publish as command

    return command.run(command.Options(site, repo, kind, private, dry_run, as_json))


@app.command()
def verify(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to check, such as moss.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Recorded weights, inputs and outputs.")],
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Compare this runtime with recorded outputs of an independent implementation."""
    from experiments.commands import verify as command

    return command.run(kind, folder, as_json=as_json)


@app.command()
def doctor(as_json: Json = False, debug: Debug = False) -> Outcome:  # noqa: ARG001
    """Show versions, devices and what is installed, and say what to do about what is missing."""
    from experiments.commands import doctor as command

    return command.run(as_json=as_json)


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
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
