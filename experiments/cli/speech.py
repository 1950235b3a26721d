"""Commands that speak and listen: say, score. Parses; what they do is in `experiments/commands/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import (
    Debug,
    Device,
    Instruction,
    Json,
    Language,
    Reference,
    Scorer,
    ScorerDevice,
    ScorersDevice,
)
from experiments.commands.outcome import Outcome

app = typer.Typer()


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
    device: ScorersDevice = None,
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
