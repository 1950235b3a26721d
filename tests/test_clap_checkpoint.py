"""Checkpoints of LAION's CLAP code as they are found in the wild, on a network of three weights."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scorers.clap.checkpoint import REMADE, fit, read_weights

POSITIONS = torch.arange(5)[None]


class Network(nn.Module):
    """Two towers, one weight each; `stores` the table of positions as older releases of transformers do."""

    def __init__(self, stores: bool = False) -> None:
        super().__init__()
        self.audio_branch = nn.Linear(3, 2, bias=False)
        self.text_branch = nn.Module()
        self.text_branch.embeddings = nn.Embedding(5, 4)
        self.text_branch.embeddings.register_buffer("position_ids", POSITIONS.clone(), persistent=stores)


def weights(**changes: Tensor | None) -> dict[str, Tensor]:
    torch.manual_seed(1)
    found: dict[str, Tensor | None] = {**Network().state_dict(), **changes}
    return {name: value for name, value in found.items() if value is not None}


def written(path: Path, stored: Any) -> Path:
    torch.save(stored, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clap.pt"


@pytest.mark.parametrize(("positions", "stores"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("wrapped", [False, True])
def test_files_that_differ_in_what_means_nothing_load_alike(
    path: Path, wrapped: bool, prefix: str, positions: bool, stores: bool
) -> None:
    """LAION's own loader deletes the positions if, and only if, the first name has the prefix."""
    wanted = weights(**{REMADE: POSITIONS} if positions else {})
    state = {prefix + name: value for name, value in wanted.items()}
    written(path, {"epoch": 3, "name": "run", "state_dict": state} if wrapped else state)
    network = Network(stores)
    fit(network, read_weights(path), path)
    for name, value in network.state_dict().items():
        assert torch.equal(value, wanted[name])


@pytest.mark.parametrize("core", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_numbers_of_either_numpy_may_stand_beside_the_weights(path: Path, core: bytes) -> None:
    metrics = {"best": np.float64(0.5), "epoch": np.int64(3), "loss": np.float32(0.25)}
    torch.save({"metrics": metrics, "state_dict": weights()}, path, _use_new_zipfile_serialization=False)
    own = (b"numpy.core.multiarray", b"numpy._core.multiarray")[int(np.lib.NumpyVersion(np.__version__) >= "2.0.0")]
    stored = path.read_bytes()
    assert own in stored
    path.write_bytes(stored.replace(own, core))
    fit(Network(), read_weights(path), path)


class Trap:
    """What a hostile checkpoint holds: a call that is made when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.proof),)


def test_code_in_a_checkpoint_is_refused_and_not_run(path: Path, tmp_path: Path) -> None:
    written(path, {"state_dict": weights(), "optimizer": Trap(tmp_path / "proof")})
    with pytest.raises(
        ValueError, match=r"clap\.pt.*cannot be read.*holds posix.mkdir, which could be made to run code"
    ):
        read_weights(path)
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ([1, 2], "holds no 'state_dict'"),
        ({}, "holds no 'state_dict'"),
        ({"state_dict": {}}, "holds no 'state_dict'"),
        ({"epoch": 3}, "'epoch' is a int"),
        ({"state_dict": {"a": 1.0}}, "'a' is a float"),
    ],
)
def test_what_holds_no_weights_is_named(path: Path, stored: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"clap\.pt.*{message}"):
        read_weights(written(path, stored))


@pytest.mark.parametrize("junk", [b"", b"not a checkpoint", b"PK\x03\x04 and no more"])
def test_a_damaged_file_is_named(path: Path, junk: bytes) -> None:
    path.write_bytes(junk)
    with pytest.raises(ValueError, match=r"clap\.pt.*cannot be read"):
        read_weights(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"audio_branch.weight": None}, r"'audio_branch\.weight' is missing"),
        ({"audio_branch.more": torch.ones(1)}, r"'audio_branch\.more': unknown"),
        ({"audio_branch.patch_embed.fusion_model.x": torch.ones(1)}, "feature fusion, which is not supported"),
        ({"audio_branch.patch_embed.mel_conv2d.x": torch.ones(1)}, "feature fusion, which is not supported"),
        ({"audio_branch.weight": torch.ones(2, 4)}, r"'audio_branch\.weight' has shape \[2, 4\], but \[2, 3\]"),
        ({"text_branch.embeddings.weight": torch.ones(9, 4)}, r"\[9, 4\].*text_model must be the folder"),
        ({"audio_branch.weight": torch.full((2, 3), torch.nan)}, r"'audio_branch\.weight' .* not finite"),
    ],
)
def test_weights_that_do_not_fit_are_named(path: Path, changes: dict[str, Tensor | None], message: str) -> None:
    with pytest.raises(ValueError, match=rf"clap\.pt.*{message}"):
        fit(Network(), weights(**changes), path)
