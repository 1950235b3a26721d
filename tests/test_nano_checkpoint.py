"""MOSS-TTS-Nano folders: every accepted form gives the same network, a damaged one an error that says what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from codec.checkpoints.errors import CheckpointError, ConfigError
from engine.nano.checkpoint import load_network, tied_names
from tests.checkpoint_files import Weights, rewrite, same, shard
from tests.tiny_nano import tiny_nano, tiny_nano_config

EMBEDDING, HEAD = "audio_embeddings.1.weight", "audio_lm_heads.1.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_nano(tmp_path / "checkpoint")


def as_bin(folder: Path) -> Path:
    path = folder / "pytorch_model.bin"
    torch.save(load_file(folder / "model.safetensors"), path)
    (folder / "model.safetensors").unlink()
    return path


def heads_only(weights: Weights) -> None:
    for head, embedding in tied_names(tiny_nano_config()):
        weights[head] = weights.pop(embedding)


def both_copies(weights: Weights) -> None:
    for head, embedding in tied_names(tiny_nano_config()):
        weights[head] = weights[embedding].clone()


def stray(weights: Weights) -> None:
    weights["local_transformer.wte.weight"] = torch.zeros(96, 32)


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("form", [len, heads_only, both_copies, stray])
def test_every_form_gives_the_same_network(folder: Path, form: Callable[[Weights], object], pickled: bool) -> None:
    network = load_network(folder)
    rewrite(folder, form)
    if pickled:
        as_bin(folder)
    loaded = load_network(folder)
    assert same(loaded.state_dict(), network.state_dict())
    assert loaded.text_lm_head.weight is loaded.transformer.wte.weight
    assert loaded.audio_lm_heads[1].weight is loaded.audio_embeddings[1].weight
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_state_dict_saved_with_its_ties_loads(folder: Path, tmp_path: Path) -> None:
    """As the release was written: tied names are one storage, and tensors may be Parameters."""
    network = load_network(folder)
    other = tiny_nano(tmp_path / "other", seed=1)
    (other / "model.safetensors").unlink()
    torch.save({**network.state_dict(keep_vars=True)}, other / "pytorch_model.bin")
    assert same(load_network(other).state_dict(), network.state_dict())


def test_untied_heads_are_read_where_the_config_says_so(folder: Path) -> None:
    rewrite(folder, both_copies)
    rewrite(folder, lambda weights: weights[HEAD].add_(1.0))
    with pytest.raises(CheckpointError, match=r"audio_lm_heads\.1\.weight.* differ"):
        load_network(folder)
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"tie_word_embeddings": False}))
    network = load_network(folder)
    assert torch.equal(network.audio_lm_heads[1].weight, network.audio_embeddings[1].weight + 1.0)


def test_shards_are_found_through_their_index(folder: Path) -> None:
    network = load_network(folder)
    shard(folder)
    assert same(load_network(folder).state_dict(), network.state_dict())
    (folder / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"b\.safetensors does not exist"):
        load_network(folder)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_files_load_into_the_dtype_asked_for(folder: Path, stored: torch.dtype) -> None:
    network = load_network(folder)
    rewrite(folder, lambda weights: weights.update({name: weight.to(stored) for name, weight in weights.items()}))
    as_bin(folder)
    assert load_network(folder, torch.bfloat16).text_embedding.weight.dtype == torch.bfloat16
    loaded = load_network(folder).state_dict()
    assert all(torch.equal(loaded[name], weight.to(stored).float()) for name, weight in network.state_dict().items())


def missing(weights: Weights) -> None:
    del weights["transformer.h.1.mlp.fc_in.bias"]


def wrong_shape(weights: Weights) -> None:
    weights["transformer.h.0.attn.c_attn.weight"] = torch.zeros(32, 96)


def more_books(weights: Weights) -> None:
    weights["audio_embeddings.3.weight"] = torch.zeros(16, 32)


def integers(weights: Weights) -> None:
    weights["transformer.ln_f.bias"] = torch.ones(32, dtype=torch.int64)


def not_a_number(weights: Weights) -> None:
    weights["local_transformer.ln_f.weight"][3] = torch.nan


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (missing, r"transformer\.h\.1\.mlp\.fc_in\.bias of shape \[64\] is missing.*download"),
        (wrong_shape, r"{file}: .*c_attn\.weight has shape \[32, 96\], config\.json asks for \[96, 32\]"),
        (more_books, r"{file}: tensor audio_embeddings\.3\.weight has no place .* different checkpoints"),
        (integers, r"{file}: transformer\.ln_f\.bias is stored as .*[iI].*64; allowed are F16, BF16, F32"),
        (not_a_number, r"{file}: local_transformer\.ln_f\.weight holds values that are not finite: download"),
    ],
)
def test_a_mismatch_names_the_file_the_tensor_and_the_cure(
    folder: Path, damage: Callable[[Weights], object], message: str, pickled: bool
) -> None:
    rewrite(folder, damage)
    if pickled:
        as_bin(folder)
    file = r"pytorch_model\.bin" if pickled else r"model\.safetensors"
    with pytest.raises(CheckpointError, match=message.replace("{file}", file)) as caught:
        load_network(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 5, 2000, -1])
@pytest.mark.parametrize("pickled", [False, True])
def test_a_truncated_file_is_named(folder: Path, keep: int, pickled: bool) -> None:
    path = as_bin(folder) if pickled else folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=rf"{path.name} is truncated .*: download") as caught:
        load_network(folder)
    assert "\n" not in str(caught.value)


class Hostile:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return Path.touch, (Path("touched"),)  # type: ignore[return-value]


def test_a_pickle_that_would_run_code_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = as_bin(folder)
    torch.save({"transformer.wte.weight": Hostile()}, path)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin holds more than tensors.* is not read"):
        load_network(folder)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("held", [[torch.ones(2)], {"model": {"a": torch.ones(2)}}])
def test_a_bin_file_of_another_make_is_refused(folder: Path, held: object) -> None:
    torch.save(held, as_bin(folder))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is no flat dictionary of tensors"):
        load_network(folder)


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"holds neither model\.safetensors nor pytorch_model\.bin: download"):
        load_network(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json does not exist"):
        load_network(folder)
