"""What is wrong with a model folder is said by name; what only is called otherwise is read."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from scorers.voiceclap.config import VoiceClapConfig
from scorers.voiceclap.features import mel_filters
from scorers.voiceclap.weights import load_network
from tests.checkpoint_files import same, shard

BUNDLE = Path(__file__).parent / "golden" / "voiceclap_like"
CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(BUNDLE / name, tmp_path / name)
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    values = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps({name: value for name, value in values.items() if value != "gone"}))


def stored(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def store(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors")


CONFIGS = [
    ({"n_state": "gone"}, "n_state is missing: a whole number above 0"),
    ({"n_layer": 0}, "n_layer is 0: a whole number above 0"),
    ({"n_head": 2.0}, r"n_head is 2\.0: a whole number"),
    ({"embed_dim": True}, "embed_dim is True"),
    ({"text_layer_norm_eps": -1.0}, r"text_layer_norm_eps is -1\.0"),
    ({"n_head": 5}, "n_state is 32: it cannot be divided by n_head, which is 5"),
    ({"text_num_heads": 5}, "text_hidden_dim is 24: it cannot be divided by text_num_heads, which is 5"),
    ({"n_ctx": 15}, "n_ctx is 15: an even number"),
    ({"n_layer": 3}, r"tensor audio\.encoder\.blocks\.2\.attn\.query\.weight of shape \[32, 32\] is missing"),
    ({"n_layer": 1}, r"tensor audio\.encoder\.blocks\.1\.\S+ has no place in the network"),
    ({"text_vocab_size": 98}, r"word_embeddings\.weight has shape \[97, 24\], config\.json asks for \[98, 24\]"),
]


@pytest.mark.parametrize(("fields", "message"), CONFIGS)
def test_a_config_that_does_not_fit_is_named(folder: Path, fields: dict[str, Any], message: str) -> None:
    change(folder, **fields)
    with pytest.raises(CheckpointError, match=message):
        load_network(folder, CPU)


def test_a_config_that_cannot_be_read_is_named(folder: Path) -> None:
    for text, message in (("{", "cannot be read as JSON"), ("[1]", "holds a list")):
        (folder / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            load_network(folder, CPU)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        load_network(folder, CPU)


def test_the_text_projection_is_halfway_where_the_config_does_not_say(folder: Path) -> None:
    change(folder, text_proj_hidden="gone")
    assert VoiceClapConfig.load(folder / "config.json").text_proj_hidden == (24 + 32) // 2


def test_a_weight_file_that_cannot_be_read_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is truncated or not a safetensors file"):
        load_network(folder, CPU)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not exist"):
        load_network(folder, CPU)


def test_shards_are_found_through_their_index(folder: Path) -> None:
    whole = load_network(folder, CPU).state_dict()
    shard(folder)
    assert same(load_network(folder, CPU).state_dict(), whole)


def test_a_value_that_is_not_finite_is_named(folder: Path) -> None:
    tensors = stored(folder)
    tensors["text.proj.0.weight"][0, 0] = float("nan")
    store(folder, tensors)
    with pytest.raises(CheckpointError, match=r"text\.proj\.0\.weight holds values that are not finite"):
        load_network(folder, CPU)


def test_an_unknown_tensor_is_named_beside_the_missing_one(folder: Path) -> None:
    tensors = stored(folder)
    tensors["head.linear"] = tensors.pop("audio.proj.2.weight")
    store(folder, tensors)
    with pytest.raises(CheckpointError, match=r"audio\.proj\.2\.weight .* is missing; found no place for head\.linear"):
        load_network(folder, CPU)


def renamed(name: str, audio: str, text: str, projection: str) -> str:
    for ours, theirs in (("audio.encoder.", audio), ("text.transformer.", text)):
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name.replace(".proj.", projection)


@pytest.mark.parametrize(
    ("audio", "text", "projection"),
    [
        ("module.audio.encoder.", "module.text.transformer.", ".proj."),
        ("audio_encoder.", "text_model.", "_projection."),
        ("model.", "model.text_encoder.bert.", "_proj."),
    ],
)
def test_names_may_differ_before_the_parts(folder: Path, audio: str, text: str, projection: str) -> None:
    ours = load_network(folder, CPU).state_dict()
    theirs = {renamed(name, audio, text, projection): tensor for name, tensor in stored(folder).items()}
    assert len(theirs.keys() - stored(folder).keys()) > 60
    store(folder, theirs)
    assert same(load_network(folder, CPU).state_dict(), ours)


def test_what_training_leaves_behind_is_not_missed_and_not_in_the_way(folder: Path) -> None:
    """Versions of BERT differ in whether they store their positions, which has broken many loaders."""
    tensors = stored(folder)
    tensors["text.transformer.embeddings.position_ids"] = torch.arange(64)[None]
    tensors["text.transformer.pooler.dense.weight"] = torch.zeros(24, 24)
    tensors["audio.encoder.audio_bos_eos_token.weight"] = torch.zeros(2, 32)
    del tensors["logit_scale"], tensors["logit_bias"]
    store(folder, tensors)
    load_network(folder, CPU)


def test_an_audio_projection_without_biases(folder: Path) -> None:
    tensors = stored(folder)
    for name in ("audio.proj.0.bias", "audio.proj.2.bias"):
        tensors[name] = torch.zeros(32)
    store(folder, tensors)
    noise = torch.randn(1, 480_000)
    zero = load_network(folder, CPU).embed_audio(noise)
    store(
        folder,
        {name: tensor for name, tensor in tensors.items() if not name.startswith("audio.proj.") or "w" in name[11:]},
    )
    network = load_network(folder, CPU)
    assert "audio.proj.0.bias" not in network.state_dict()
    assert torch.equal(network.embed_audio(noise), zero)


def test_half_precision_is_read_as_float32(folder: Path) -> None:
    store(folder, {name: tensor.half() for name, tensor in stored(folder).items()})
    assert {tensor.dtype for tensor in load_network(folder, CPU).state_dict().values()} == {torch.float32}


FILTERS = [
    ("htk", 1.0, logging.INFO, "on the HTK scale"),
    ("slaney", 1.0, logging.WARNING, "on the Slaney scale; HTK was expected"),
    ("htk", 2.0, logging.WARNING, "on no known scale"),
]


@pytest.mark.parametrize(("scale", "factor", "level", "message"), FILTERS)
@pytest.mark.parametrize("turned", [False, True])
def test_stored_filters_are_used_and_their_scale_is_reported(
    folder: Path, caplog: pytest.LogCaptureFixture, scale: Any, factor: float, level: int, message: str, turned: bool
) -> None:
    filters = mel_filters(scale, 80) * factor
    store(folder, stored(folder) | {"audio.mel_filters": filters.T.contiguous() if turned else filters})
    with caplog.at_level(logging.INFO, logger="scorers.voiceclap"):
        network = load_network(folder, CPU)
    assert torch.equal(network.mel_filters, filters)
    assert [(record.levelno, message in record.message) for record in caplog.records] == [(level, True)]


def test_without_stored_filters_htk_is_taken_and_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="scorers.voiceclap"):
        network = load_network(folder, CPU)
    assert torch.equal(network.mel_filters, mel_filters("htk", 80))
    assert "stores no mel filters" in caplog.text


def test_two_sets_of_filters_are_one_too_many(folder: Path) -> None:
    filters = mel_filters("htk", 80)
    store(folder, stored(folder) | {"audio.mel_filters": filters, "filters": filters.clone()})
    with pytest.raises(CheckpointError, match=r"audio\.mel_filters and filters both look like mel filters"):
        load_network(folder, CPU)
