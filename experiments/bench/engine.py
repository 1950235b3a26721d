"""How long an engine takes for a frame, by the number of candidates, beside what memory bandwidth allows.

Measures the network, its caches and the sampling; prompts, the codec and scorers are no part of a frame. Nothing here
says what is fast enough.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from engine.moss.frames import FrameNetwork
from engine.moss.graphs import CudaGraphs, Recorder, Unrecorded
from engine.moss.prompt import Prompt
from engine.moss.static_stream import FramePlaces, StaticStream
from engine.moss.stream import USUAL_FRAME_RATE, MossStream, RandomDraws
from experiments.bench.timing import Row, Table
from experiments.bench.voices import RANDOM, network_of, position_bytes, usual_size, weight_bytes
from search.config import MAX_SECONDS, Sampling
from search.devices import device_of
from search.noise import RowNoise
from search.timing import Stopwatch

CANDIDATES = (1, 4, 8, 16, 32)
FRAMES = 100
CHUNK = 10
MOST_FRAMES = 700
GUIDANCE = 2.0
PROMPT_ROWS, UNCONDITIONAL_ROWS = 200, 100
_SAMPLING = Sampling(min_seconds=MAX_SECONDS)  # nobody stops
_COPY_BYTES = {"cuda": 1 << 31, "cpu": 1 << 28}


def bench_engine(
    spec: str = RANDOM,
    *,
    size: str | None = None,
    candidates: Sequence[int] = CANDIDATES,
    frames: int = FRAMES,
    device: str | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> list[Table]:
    """Measure a frame of an engine with and without guidance; `note` is told what is being done.

    Args:
        spec: `moss:random`, or an engine that can be loaded.
        device: None is a GPU if there is one.
        size: of random weights: full, small or tiny; None is full on a GPU and small without.
        frames: that are timed for each row of the table, in chunks of ten.

    Tables: "engine", "frames" and "shares".

    Raises:
        ValueError: a setting is not allowed, or the engine cannot be measured.
    """
    where = device_of(device or ("cuda" if torch.cuda.is_available() else None))
    if not CHUNK <= frames <= MOST_FRAMES or frames % CHUNK:
        raise ValueError(f"frames: {frames} is not allowed; give a multiple of {CHUNK} up to {MOST_FRAMES}")
    if not candidates or min(candidates) < 1:
        raise ValueError(f"n: {list(candidates)} is not allowed; give numbers of candidates from 1 up")
    note(f"loading {spec}")
    with torch.inference_mode():
        network = network_of(spec, size, where)
        bandwidth = copy_bandwidth(where)
        rows: list[Row] = []
        for n in candidates:
            for guidance in (1.0, GUIDANCE):
                for how, recorder in _ways(where):
                    note(f"{how}, n = {n}, guidance {guidance:g}")
                    rows.append(frame_row(network, n, guidance, how, recorder, frames, bandwidth))
        note("shares")
        shares = [share_row(network, n, guidance) for n in candidates for guidance in (1.0, GUIDANCE)]
    shown = f"{spec} {size or usual_size(where)}" if spec == RANDOM else spec
    return [
        Table(
            "engine",
            "What was measured; a reduced size says little about the published one",
            [_machine(network, shown, where, bandwidth)],
        ),
        Table("frames", f"A frame, in chunks of {CHUNK}; floor: bytes that it reads over the bandwidth", rows),
        Table("shares", "Where the time of an eager frame goes, in percent", shares),
    ]


def frame_row(
    network: FrameNetwork, n: int, guidance: float, how: str, recorder: Recorder | None, frames: int, bandwidth: float
) -> Row:
    """Milliseconds of a frame, over chunks after the first; every chunk is committed, as in a search that keeps one."""
    device = network.text_embedding.weight.device
    stream = _opened(network, n, guidance, recorder, frames)
    taken, touched = [], []
    for _ in range(1 + frames // CHUNK):
        touched.append(weight_bytes(network) + position_bytes(network) * _positions(stream))
        with Stopwatch(device) as watch:
            stream.advance(CHUNK)
        taken.append(1000 * watch.wall / CHUNK)
        stream.fork(torch.zeros(1, n, dtype=torch.int64))
        stream.commit(torch.tensor([CHUNK]))
    stream.close()
    median, floor = statistics.median(taken[1:]), 1000 * statistics.mean(touched[1:]) / bandwidth
    return {
        "how": how,
        "n": n,
        "guidance": guidance,
        "median_ms": median,
        "p95_ms": float(np.percentile(taken[1:], 95)),
        "least_ms": min(taken[1:]),
        "rtf": median * float(USUAL_FRAME_RATE) / 1000,
        "floor_ms": floor,
        "over_floor": median / floor,
        "capture_s": recorder.seconds if recorder else 0.0,
    }


def share_row(network: FrameNetwork, n: int, guidance: float) -> Row:
    """Shares of eager frames: global decoder, depth decoder, and the rest, which is heads, sampling and the host."""
    device = network.text_embedding.weight.device
    stream = _opened(network, n, guidance, None, 0)
    stream.advance(2)
    parts = {"global": network.transformer, "depth": network.local_transformer}
    with _clocked(parts, device) as seconds, Stopwatch(device) as watch:
        stream.advance(3 * CHUNK)
    shares: Row = {f"{name}_percent": 100 * sum(taken) / watch.wall for name, taken in seconds.items()}
    rest = 100 * (1 - sum(map(sum, seconds.values())) / watch.wall)
    return {"n": n, "guidance": guidance} | shares | {"rest_percent": rest}


def copy_bandwidth(device: torch.device, runs: int = 8) -> float:
    """Bytes a second, read and written, of the fastest of some big copies."""
    source = torch.ones(_COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    fastest = float("inf")
    for _ in range(runs):
        with Stopwatch(device) as watch:
            target.copy_(source)
        fastest = min(fastest, watch.device)
    return 2 * source.numel() / fastest


def _ways(device: torch.device) -> list[tuple[str, Recorder | None]]:
    """Plain streams, streams on fixed buffers, and those with graphs, where there are any."""
    ways: list[tuple[str, Recorder | None]] = [("eager", None), ("static", Unrecorded())]
    return [*ways, ("graph", CudaGraphs(device))] if device.type == "cuda" else ways


def _opened(network: FrameNetwork, n: int, guidance: float, recorder: Recorder | None, frames: int) -> MossStream:
    prompt = Prompt(_rows(network, PROMPT_ROWS), _rows(network, UNCONDITIONAL_ROWS))
    noise = RowNoise(0, ["bench"], n, network.text_embedding.weight.device)
    draws = RandomDraws(noise, _SAMPLING, network.config.books)
    if recorder is None:
        return MossStream(network, [prompt], n, draws, guidance=guidance, penalty=1.0)
    places = FramePlaces(network, recorder)
    return StaticStream(
        network, [prompt], n, draws, guidance=guidance, sampling=_SAMPLING, places=places, budget=frames + CHUNK
    )


def _rows(network: FrameNetwork, length: int) -> Tensor:
    rows = torch.full((length, 1 + network.config.books), network.config.audio_pad)
    rows[:, 0] = torch.arange(length) % min(100, network.config.backbone.vocabulary)
    return rows


def _positions(stream: MossStream) -> float:
    """Cached positions that a frame of the coming chunk reads on average: trunks once, tails for every row."""
    cache = stream.state.cache
    return sum(cache.committed) + cache.groups * cache.n * (CHUNK + 1) / 2


@contextmanager
def _clocked(parts: dict[str, nn.Module], device: torch.device) -> Iterator[dict[str, list[float]]]:
    """Seconds of every call of some modules; a GPU is waited for at each, which makes the whole slower than it is."""
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    with_hooks = []
    for name, module in parts.items():
        watch = Stopwatch(device)

        def before(_module: nn.Module, _inputs: object, watch: Stopwatch = watch) -> None:
            watch.__enter__()

        def after(
            _module: nn.Module, _inputs: object, _output: object, watch: Stopwatch = watch, name: str = name
        ) -> None:
            watch.__exit__(None, None, None)
            seconds[name].append(watch.wall)

        with_hooks += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield seconds
    finally:
        for hook in with_hooks:
            hook.remove()


def _machine(network: FrameNetwork, shown: str, device: torch.device, bandwidth: float) -> Row:
    weight = network.text_embedding.weight
    reduced = shown.startswith(RANDOM) and not shown.endswith("full")
    return {
        "engine": shown,
        "size": "reduced" if reduced else "as published",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu, no GPU",
        "dtype": str(weight.dtype).removeprefix("torch."),
        "million_parameters": sum(parameter.numel() for parameter in network.parameters()) / 1e6,
        "weights_mb_a_frame": weight_bytes(network) / 1e6,
        "bandwidth_gb_s": bandwidth / 1e9,
    }
