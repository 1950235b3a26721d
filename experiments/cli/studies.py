"""Commands of studies: sweep, judge, study, publish. Parses; what they do is in `experiments/commands/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import Debug, Device, Json, RunFolder, Scorer, ScorerDevice, ScorersDevice
from experiments.commands.outcome import Outcome

app = typer.Typer()


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
    run_folder: RunFolder,
    scorer: Scorer,
    device: ScorersDevice = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> Outcome:
    """Let a scorer that took no part in a sweep hear what it chose; takes up where it was stopped."""
    from experiments.commands import judge as command

    return command.run(command.Options(run_folder, scorer, device, as_json))


@app.command()
def study(
    run_folder: RunFolder,
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
