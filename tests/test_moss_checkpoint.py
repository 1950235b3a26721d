"""Checkpoint folders: every accepted form gives the same network, every damaged one an error that says what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from codec.checkpoints.errors import CheckpointError, ConfigError
from engine.moss.checkpoint import load_network, save_network, tied_names
from tests.checkpoint_files import Weights, rewrite, same, shard
from tests.tiny import tiny_moss, tiny_moss_config

EMBEDDING, HEAD = "audio_embeddings.1.weight", "audio_lm_heads.1.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_moss(tmp_path / "checkpoint")


def heads_only(weights: Weights) -> None:
    for head, embedding in tied_names(tiny_moss_config()):
        weights[head] = weights.pop(embedding)


def both_copies(weights: Weights) -> None:
    for head, embedding in tied_names(tiny_moss_config()):
        weights[head] = weights[embedding].clone()


def test_a_written_network_reads_back_bitwise(folder: Path, tmp_path: Path) -> None:
    network = load_network(folder)
    save_network(network, tmp_path / "again")
    assert same(load_network(tmp_path / "again").state_dict(), network.state_dict())
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert network.audio_lm_heads[1].weight is network.audio_embeddings[1].weight


@pytest.mark.parametrize("form", [heads_only, both_copies])
def test_tied_weights_may_be_stored_in_any_form(folder: Path, form: Callable[[Weights], object]) -> None:
    network = load_network(folder)
    rewrite(folder, form)
    assert same(load_network(folder).state_dict(), network.state_dict())


def test_shards_are_found_through_their_index(folder: Path) -> None:
    network = load_network(folder)
    shard(folder)
    assert same(load_network(folder).state_dict(), network.state_dict())
    (folder / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"b\.safetensors does not exist"):
        load_network(folder)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_files_load_into_the_dtype_asked_for(folder: Path, tmp_path: Path, stored: torch.dtype) -> None:
    network = load_network(folder)
    save_network(network, tmp_path / "half", dtype=stored)
    for wanted in (torch.float32, torch.bfloat16):
        weight = load_network(tmp_path / "half", wanted).transformer.norm.weight
        assert weight.dtype == wanted
    loaded = load_network(tmp_path / "half").state_dict()
    assert all(torch.equal(loaded[name], weight.to(stored).float()) for name, weight in network.state_dict().items())


def missing(weights: Weights) -> None:
    del weights["transformer.layers.1.mlp.up_proj.weight"]


def missing_pair(weights: Weights) -> None:
    del weights[EMBEDDING]


def wrong_shape(weights: Weights) -> None:
    weights["transformer.layers.0.self_attn.k_proj.weight"] = torch.zeros(32, 32)


def smaller_book(weights: Weights) -> None:
    weights[EMBEDDING] = weights[EMBEDDING][:-1].contiguous()


def more_books(weights: Weights) -> None:
    weights["audio_embeddings.3.weight"] = torch.zeros(16, 32)


def untied(weights: Weights) -> None:
    weights[HEAD] = weights[EMBEDDING] + 1.0


def integers(weights: Weights) -> None:
    weights["transformer.norm.weight"] = torch.ones(32, dtype=torch.int64)


def not_a_number(weights: Weights) -> None:
    weights["transformer.norm.weight"][3] = torch.nan


def infinite(weights: Weights) -> None:
    weights[EMBEDDING][1, 2] = torch.inf


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (missing, r"transformer\.layers\.1\.mlp\.up_proj\.weight of shape \[64, 32\] is missing.*download"),
        (missing_pair, r"audio_embeddings\.1\.weight of shape \[24, 32\] is missing"),
        (wrong_shape, r"model\.safetensors: .*k_proj\.weight has shape \[32, 32\], config\.json asks for \[16, 32\]"),
        (smaller_book, r"audio_embeddings\.1\.weight has shape \[23, 32\], config\.json asks for \[24, 32\]"),
        (more_books, r"model\.safetensors: .*audio_embeddings\.3\.weight has no place .* different checkpoints"),
        (untied, r"audio_embeddings\.1\.weight and audio_lm_heads\.1\.weight differ.* tie_word_embeddings to false"),
        (integers, r"transformer\.norm\.weight is stored as I64; allowed are F16, BF16, F32"),
        (not_a_number, r"model\.safetensors: transformer\.norm\.weight holds values that are not finite"),
        (infinite, r"model\.safetensors: audio_embeddings\.1\.weight holds values that are not finite"),
    ],
)
def test_a_mismatch_names_the_tensor_and_the_cure(
    folder: Path, damage: Callable[[Weights], object], message: str
) -> None:
    rewrite(folder, damage)
    with pytest.raises(CheckpointError, match=message):
        load_network(folder)


@pytest.mark.parametrize("keep", [0, 5, 2000, -1])
def test_a_truncated_file_is_named(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is truncated .*: download"):
        load_network(folder)


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not exist"):
        load_network(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json does not exist"):
        load_network(folder)


def test_a_config_with_another_number_of_books_does_not_fit(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    raw |= {"n_vq": 2, "audio_codebook_sizes": [24, 24]}
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(CheckpointError, match=r"audio_embeddings\.2\.weight has no place"):
        load_network(folder)


def test_an_index_without_a_map_is_named(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"index\.json has no readable weight_map"):
        load_network(folder)


def test_untied_heads_are_read_and_written_beside_their_embeddings(folder: Path, tmp_path: Path) -> None:
    def part(weights: Weights) -> None:
        both_copies(weights)
        untied(weights)

    tied = load_network(folder)
    tied_head = tied.audio_lm_heads[1].weight.clone()
    rewrite(folder, part)
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"tie_word_embeddings": False}))
    network = load_network(folder)
    assert torch.equal(network.audio_lm_heads[1].weight, tied_head + 1.0)
    assert torch.equal(network.audio_embeddings[1].weight, tied_head)
    save_network(network, tmp_path / "again")
    assert same(load_network(tmp_path / "again").state_dict(), network.state_dict())
    rewrite(folder, lambda weights: weights.pop(HEAD))
    with pytest.raises(CheckpointError, match=r"audio_lm_heads\.1\.weight of shape \[24, 32\] is missing"):
        load_network(folder)


def test_a_damaged_shard_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    names = {"transformer.norm.weight": "model-00001-of-00002.safetensors", "a": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors is truncated .*: download"):
        load_network(folder)


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model_bf16.pt")
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors does not exist: .*pickled weights instead .model_bf16\.pt"
    ):
        load_network(folder)


def test_weights_in_the_dtype_asked_for_stay_mapped_to_their_file(folder: Path) -> None:
    """What is mapped shows the file: here, its bytes changed in place."""
    network = load_network(folder)
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(int.from_bytes(path.read_bytes()[:8], "little") + 8)
        file.write(b"\x00" * (path.stat().st_size - file.tell()))
    assert not any(bool(weight.any()) for weight in network.state_dict().values())
