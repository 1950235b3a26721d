"""Commands that check and measure: verify, bench, doctor. Parses; what they do is in `experiments/commands/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import Debug, Device, Json
from experiments.commands.outcome import Outcome

app = typer.Typer()
bench = typer.Typer(help="Measure speed and memory on this machine.")
app.add_typer(bench, name="bench")


@bench.command("scorers")
def bench_scorers(
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="SPEC", help="A head, kind or kind:model; may be repeated. Else all that load."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="Of the heads, such as cuda:0; else the CPU.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few runs, to see that it works.")] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Heads: one batch against single calls, cost by length, in a row against threads and processes, memory."""
    from experiments.commands import bench as command

    return command.run_scorers(head or [], device=device, quick=quick, as_json=as_json)


@bench.command("engine")
def bench_engine(
    engine: Annotated[
        str, typer.Option("--engine", help="builtin, or moss:random for random weights.")
    ] = "moss:random",
    size: Annotated[str | None, typer.Option("--size", help="Of random weights: full, small or tiny.")] = None,
    n: Annotated[str, typer.Option("--n", help="Candidates, such as 1,4,8.")] = "1,4,8,16,32",
    frames: Annotated[int, typer.Option("--frames", help="That are measured: tens, up to 700.")] = 50,
    device: Device = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Engines: milliseconds of a frame, with and without guidance, beside the floor that memory sets."""
    from experiments.commands import bench as command

    return command.run_engine(engine, size=size, candidates=n, frames=frames, device=device, as_json=as_json)


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
