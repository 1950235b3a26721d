"""`chunksearch say`: check what was asked, load, search sentence by sentence, report.

Everything that can be wrong with a request is found before a model is loaded, or else before the first search. Knows
nothing about models: engines and scorers come from their registries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.status import Status

from engine.registry import load_engine
from experiments.commands import checks
from experiments.commands.outcome import (
    BAD_INPUT,
    DONE,
    FAILED,
    HIT_FRAME_LIMIT,
    CommandError,
    InputError,
    Outcome,
    described,
)
from experiments.commands.players import Playback, Player
from experiments.commands.reading import Reading
from experiments.commands.sinks import RawOutput, Sink, WavFile
from experiments.commands.summary import results_table, step_line, summary, unjudged
from experiments.commands.terminal import Terminal
from experiments.report.files import write_report
from scorers.registry import load_scorer
from search import ChunkSearch, SearchConfig, SearchFailed, SpeechRequest
from search.devices import device_of
from search.protocols import Engine, Scorer
from search.record import Candidates


@dataclass(frozen=True)
class Devices:
    """Where engine and scorer run, and the type of the engine's weights; None leaves it to them."""

    engine: str | None = None
    scorer: str | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Options:
    """The options of `say` as they were typed; `settings` for a `SearchConfig`, `manner` for `SpeechRequest`s."""

    text: str
    settings: dict[str, Any]
    chunk_ms: float
    engine: str
    scorer: str
    devices: Devices
    manner: dict[str, Any]
    output: str | None
    report: Path | None
    play: bool
    strict: bool
    as_json: bool


def run(options: Options) -> Outcome:
    """Speak the text. Raises `InputError` before the search, `CommandError` when it broke off."""
    config = checks.checked_config(options.settings)
    wav = checks.checked_output(
        options.output, other_place=options.play or options.report is not None, as_json=options.as_json
    )
    players = checks.checked_players(wanted=options.play)
    sentences = checks.checked_sentences(options.text, options.engine)
    report = checks.checked_report(options.report)
    checks.checked_reference(options.manner)
    terminal = Terminal.opened(output_is_data=options.as_json or options.output == "-")
    with terminal.notes.status("loading") as status:
        engine = load_voice(options.engine, options.devices)
        config = replace(config, chunk_frames=checks.chunk_frames(options.chunk_ms, engine.frame_rate))
        requests = checks.checked_requests(sentences, options.manner, engine)
        warm_up(engine, requests[0], config)
        scorer = load_judge(options.scorer, options.devices)
        checks.prepared_report(report)
        files = [path for path in (wav, report and report / "speech.wav") if path is not None]
        sinks = _sinks(files, players, engine.sample_rate, raw=options.output == "-")
        reading = Reading(
            ChunkSearch(engine, scorer), sinks, watch=_progress(status, len(requests)), record=report is not None
        )
        stopped: BaseException | None = None
        finished = False
        try:
            with ExitStack() as open_sinks:
                for sink in sinks:
                    open_sinks.enter_context(sink)
                for request in requests:
                    reading.speak(request, config)
                finished = True
        except (Exception, KeyboardInterrupt) as error:
            stopped = error
    return _concluded(options, terminal, reading, files, stopped, finished=finished)


def load_voice(engine: str, devices: Devices) -> Engine:
    """The engine of a spec; an unknown name, a missing file or a device that is not there is bad input."""
    try:
        return load_engine(engine, devices.engine, checks.checked_dtype(devices.dtype))
    except (ValueError, FileNotFoundError) as error:
        raise checks.bad_input(error, "--engine") from error


def load_judge(scorer: str, devices: Devices) -> Scorer:
    """The scorer of a spec, likewise."""
    try:
        device_of(devices.scorer)
    except ValueError as error:
        raise InputError(f"--scorer-{error}") from error
    try:
        return load_scorer(scorer, devices.scorer)
    except (ValueError, FileNotFoundError) as error:
        raise checks.bad_input(error, "--scorer") from error


def warm_up(engine: Engine, request: SpeechRequest, config: SearchConfig) -> None:
    """On a GPU, let an engine record its graphs while no scorer is there yet: other work on a GPU can spoil it."""
    record = getattr(engine, "warm_up", None)
    if engine.device.type == "cuda" and record is not None:
        record([request], config.n, config.sampling)


def _sinks(files: Sequence[Path], players: Sequence[Player], sample_rate: int, *, raw: bool) -> list[Sink]:
    sinks: list[Sink] = [WavFile(path, sample_rate) for path in files]
    if raw:
        sinks.append(RawOutput())
    if players:
        sinks.append(Playback(players, sample_rate))
    return sinks


def _progress(status: Status, sentences: int) -> Callable[[Candidates], None]:
    spoken = 0

    def watch(candidates: Candidates) -> None:
        nonlocal spoken
        spoken += candidates.record["step"] == 1
        prefix = f"sentence {spoken} of {sentences}, " if sentences > 1 else ""
        status.update(prefix + step_line(candidates.record))

    return watch


def _concluded(
    options: Options,
    terminal: Terminal,
    reading: Reading,
    files: Sequence[Path],
    stopped: BaseException | None,
    *,
    finished: bool,
) -> Outcome:
    """Write the report, say what there is and where, and turn what stopped the reading into one line.

    `finished`: every sentence was spoken, so that what stopped came after the search.
    """
    kept = [path for path in files if reading.samples]
    data = summary(reading, str(kept[0]) if kept else None)
    if options.report is not None:
        write_report(options.report, [[take] for take in reading.takes], data)
        data["report"] = str(options.report / "index.html")
        terminal.notes.print(f"report: {data['report']}", markup=False)
    if reading.takes:
        terminal.results.print(results_table(reading.takes))
        if reason := unjudged(reading.takes):
            terminal.notes.print(f"nothing was judged, so nothing was chosen: {reason}", style="yellow", markup=False)
    if finished:
        for path in kept:
            terminal.notes.print(f"audio: {path}", markup=False)
    if stopped is None:
        strict = options.strict and data["status"] == "hit_frame_limit"
        return Outcome(HIT_FRAME_LIMIT if strict else DONE, data)
    seconds = reading.samples / reading.search.engine.sample_rate
    where = f" and are in {' and '.join(str(path) for path in kept)}" if kept else ""
    rest = f"; {seconds:.2f} s were committed before{where}" if reading.samples else "; nothing was committed"
    if finished:
        rest = ""
    code, cause = _cause(stopped, started=bool(reading.takes and reading.takes[-1].result.steps))
    raise CommandError(cause + rest, code, data) from stopped


def _cause(stopped: BaseException, *, started: bool) -> tuple[int, str]:
    """Exit code and message of what stopped a reading."""
    if isinstance(stopped, KeyboardInterrupt):
        return FAILED, "interrupted"
    cause = (stopped.__cause__ or stopped) if isinstance(stopped, SearchFailed) else stopped
    if isinstance(cause, CommandError):
        return cause.code, str(cause)
    if isinstance(cause, ValueError) and not started:  # an engine that only finds out when it opens
        return BAD_INPUT, str(checks.bad_input(cause))
    return FAILED, described(cause)
