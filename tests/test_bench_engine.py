"""Speed of engines: what is measured has the right shape, and the floor counts the bytes that a frame reads."""

import json

import pytest
import torch

from engine.moss.graphs import Unrecorded
from engine.nano.network import NanoNetwork
from experiments.bench.engine import bench_engine, frame_row
from experiments.bench.voices import SIZES, network_of, position_bytes, random_network, weight_bytes
from experiments.commands import bench as command
from experiments.commands.outcome import DONE, InputError
from tests.tiny_nano import tiny_nano_config

CPU = torch.device("cpu")


def test_tables_of_a_tiny_network() -> None:
    notes: list[str] = []
    tables = {
        table.name: table
        for table in bench_engine(size="tiny", candidates=(1, 3), frames=20, device="cpu", note=notes.append)
    }
    assert sorted(tables) == ["engine", "frames", "shares"]
    machine = tables["engine"].rows[0]
    assert machine["engine"] == "moss:random tiny"
    assert machine["size"] == "reduced"
    assert "no GPU" in str(machine["device"])
    frames = tables["frames"].rows
    assert [(row["how"], row["n"], row["guidance"]) for row in frames] == [
        (how, n, guidance) for n in (1, 3) for guidance in (1.0, 2.0) for how in ("eager", "static")
    ]
    for row in frames:
        assert 0 < float(row["floor_ms"]) < float(row["least_ms"])
        assert float(row["least_ms"]) <= float(row["median_ms"]) <= float(row["p95_ms"])
        assert float(row["rtf"]) == pytest.approx(float(row["median_ms"]) / 80)
    for row in tables["shares"].rows:
        parts = [float(row[f"{part}_percent"]) for part in ("global", "depth", "rest")]
        assert min(parts) > 0
        assert sum(parts) == pytest.approx(100)
    assert len({tuple(row) for row in frames}) == 1, "rows of a table have the same columns"
    json.dumps([table.rows for table in tables.values()])
    assert "static, n = 3, guidance 2" in notes


def test_the_floor_counts_what_a_frame_reads() -> None:
    """Layer by layer, from the shapes of the tiny configuration: 2 layers, width 64, 3 books of 32, float32."""
    attention = 64 * 64 * 2 + 2 * 64 * 16
    layer = attention + 3 * 64 * 128 + 2 * 64 + 2 * 16
    depth = (64 * 192 + 192) + (64 * 64 + 64) + (64 * 128 + 128) + (128 * 64 + 64) + 3 * 2 * 64
    network = random_network("tiny", CPU, torch.float32)
    assert weight_bytes(network) == 4 * (2 * layer + 64 + 3 * depth + 3 * 32 * 64)
    assert position_bytes(network) == 4 * 2 * 2 * 1 * 16
    nano = NanoNetwork(tiny_nano_config(), spoken_books=2)
    assert weight_bytes(nano) < weight_bytes(NanoNetwork(tiny_nano_config()))


def test_more_candidates_read_more_of_the_caches_and_no_more_weights() -> None:
    network = random_network("tiny", CPU, torch.float32)
    one, many = (frame_row(network, n, 1.0, "static", Unrecorded(), 10, 1e9) for n in (1, 9))
    gap = float(many["floor_ms"]) - float(one["floor_ms"])
    assert gap == pytest.approx(8 * 5.5 * position_bytes(network) / 1e6)


def test_the_published_size_has_the_published_number_of_parameters() -> None:
    """Shapes of the released checkpoint, tied pairs counted once."""
    assert SIZES["full"].books == 12
    with torch.device("meta"):
        from engine.moss.network import MossNetwork

        count = sum(parameter.numel() for parameter in MossNetwork(SIZES["full"]).parameters())
    layer = 2 * 4096 * 2560 + 2 * 1024 * 2560 + 3 * 9728 * 2560 + 2 * 2560 + 2 * 128
    local = 4 * 2560 * 2560 + 4 * 2560 + 2 * 9728 * 2560 + 9728 + 2560 + 3 * 2 * 2560
    assert count == 36 * layer + 2560 + 151_936 * 2560 + local + 12 * 1024 * 2560 + 2 * 2560


def test_random_weights_are_tied_finite_and_of_the_asked_dtype() -> None:
    network = random_network("tiny", CPU, torch.bfloat16)
    assert network.audio_lm_heads[0].weight is network.audio_embeddings[0].weight
    assert all(bool(parameter.isfinite().all()) for parameter in network.parameters())
    assert {parameter.dtype for parameter in network.parameters()} == {torch.bfloat16}
    assert bool((network.transformer.norm.weight == 1).all())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": "huge"}, "size: 'huge' is not known; allowed are full, small, tiny"),
        ({"spec": "builtin", "size": "tiny"}, "size: 'tiny' is for moss:random"),
        ({"spec": "fake"}, "engine: 'fake' has no frame step"),
        ({"spec": "nobody"}, "engine: 'nobody' is not known"),
        ({"frames": 15}, "frames: 15 is not allowed; give a multiple of 10 up to 700"),
        ({"candidates": (0, 4)}, r"n: \[0, 4\] is not allowed"),
    ],
)
def test_wrong_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench_engine(**settings)  # type: ignore[arg-type]


def test_the_built_in_voice_can_be_measured() -> None:
    network = network_of("builtin", None, CPU)
    row = frame_row(network, 2, 1.0, "eager", None, 10, 1e10)
    assert float(row["over_floor"]) > 1


def test_the_command_prints_tables_or_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"size": "tiny", "candidates": "1", "frames": 10, "device": "cpu"}
    outcome = command.run_engine("moss:random", as_json=False, **settings)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("static", "floor", "capture", "no GPU", "reduced"))
    assert outcome.code == DONE
    assert set(outcome.data) == {"kind", "machine", "engine", "frames", "shares"}
    command.run_engine("moss:random", as_json=True, **settings)
    assert capsys.readouterr().out == ""
    with pytest.raises(InputError, match="size: 'huge'"):
        command.run_engine("moss:random", as_json=True, **{**settings, "size": "huge"})
