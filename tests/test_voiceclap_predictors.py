"""Files of predictors: what is in them is checked, what could run code is refused, and values end where scales end."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from codec.checkpoints.errors import CheckpointError
from scorers.voiceclap.predictors import Predictor, load_predictors

HEADS = Path(__file__).parent / "golden" / "voiceclap_like" / "heads"
WIDTH = 32


def parts(outputs: int = 1, **changes: Any) -> dict[str, Any]:
    """What LAION's files hold, with random numbers."""
    layers = {"f1.weight": torch.randn(5, WIDTH), "f1.bias": torch.randn(5)}
    layers |= {"f2.weight": torch.randn(outputs, 5), "f2.bias": torch.randn(outputs)}
    whole = {"state_dict": layers, "mu": np.zeros(WIDTH), "sd": np.ones(WIDTH), "levels": None}
    return whole | changes


def constant(value: float, levels: Any) -> dict[str, Any]:
    """A regression that always says `value`."""
    whole = parts(levels=levels)
    whole["state_dict"]["f2.weight"].zero_()
    whole["state_dict"]["f2.bias"].fill_(value)
    return whole


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Predictor]:
    def save(contents: Any, name: str = "SOME") -> Predictor:
        torch.save(contents, tmp_path / f"{name}.pt")
        return load_predictors([tmp_path / f"{name}.pt"], WIDTH)[0]

    return save


def test_names_and_order_follow_from_the_files() -> None:
    found = load_predictors(HEADS, WIDTH)
    assert [head.name for head in found] == ["genuineness", "blend", "AROU_classification", "AROU_regression"]
    assert [head.meaning for head in found] == ["0 to 6", "0 to 10", "most probable of 7 classes, from 0", "0 to 6"]


def test_one_dimension_in_two_folders_gets_their_names(tmp_path: Path) -> None:
    for kind in ("regression", "classification"):
        (tmp_path / kind).mkdir()
        shutil.copy(HEADS / f"AROU_{kind}.pt", tmp_path / kind / "AROU.pt")
    # LAION's folder of dimensions holds the encoder too, which is no predictor.
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert [head.name for head in load_predictors(tmp_path, WIDTH)] == ["AROU_classification", "AROU_regression"]
    (tmp_path / "other" / "regression").mkdir(parents=True)
    shutil.copy(HEADS / "AROU_regression.pt", tmp_path / "other" / "regression" / "AROU.pt")
    with pytest.raises(CheckpointError, match="'AROU_regression' names more than one term"):
        load_predictors(tmp_path, WIDTH)


@pytest.mark.parametrize(("says", "levels", "expected"), [
    (9.0, {str(level): "x" for level in range(7)}, 6.0),
    (-1.0, 7, 0.0),
    (3.5, ["none", "some", "much"], 2.0),
    (1.5, ["none", "some", "much"], 1.5),
    (99.0, None, 99.0),
])  # fmt: skip
def test_a_regression_ends_where_its_scale_ends(
    saved: Callable[..., Predictor], says: float, levels: Any, expected: float
) -> None:
    assert saved(constant(says, levels)).predict(torch.randn(WIDTH)) == (expected, "")


def test_scales_of_the_rewards_are_known(saved: Callable[..., Predictor]) -> None:
    for name, term, end in (("genu_commercial_best", "genuineness", 6.0), ("blend_head_commercial", "blend", 10.0)):
        head = saved(constant(99.0, None), name)
        assert (head.name, head.predict(torch.randn(WIDTH))[0]) == (term, end)


def test_a_classification_gives_its_most_probable_class(saved: Callable[..., Predictor]) -> None:
    whole = parts(outputs=3, levels={2: "high", 0: "low", 1: "middle"})
    whole["state_dict"]["f2.weight"].zero_()
    whole["state_dict"]["f2.bias"] = torch.tensor([0.5, 0.125, 0.375]).log()
    assert saved(whole).predict(torch.randn(WIDTH)) == (0.0, "low (0.50)")
    whole["state_dict"]["f2.bias"] = torch.tensor([0.25, 0.15, 0.6]).log()
    assert saved(whole).predict(torch.randn(WIDTH)) == (2.0, "high (0.60)")


def test_a_constant_dimension_does_not_divide_by_zero(saved: Callable[..., Predictor]) -> None:
    spread = np.ones(WIDTH)
    spread[3] = 0.0
    value = saved(parts(sd=spread)).outputs(torch.zeros(WIDTH))
    assert bool(value.isfinite())


def test_safetensors_say_the_same(tmp_path: Path) -> None:
    (pickled,) = load_predictors([HEADS / "AROU_regression.pt"], WIDTH)
    levels = json.dumps([f"level {level}" for level in range(7)])
    save_file(dict(pickled.tensors), tmp_path / "AROU_regression.safetensors", {"levels": levels})
    (safe,) = load_predictors(tmp_path, WIDTH)
    embedding = torch.randn(WIDTH)
    assert safe.predict(embedding) == pickled.predict(embedding)
    assert (safe.name, safe.end) == (pickled.name, pickled.end)


class Malicious:
    """A pickle that runs a command when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.path}",))


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, saved: Callable[..., Predictor]) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(CheckpointError, match=r"SOME\.pt asks for more than tensors and NumPy arrays"):
        saved(parts(levels=Malicious(ran)))
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(parts(mu=Malicious(ran)), protocol=2))
    with pytest.raises(CheckpointError, match=r"raw\.pt"):
        load_predictors(tmp_path / "raw.pt", WIDTH)
    assert not ran.exists()
    pickle.loads((tmp_path / "raw.pt").read_bytes())
    assert ran.exists(), "the pickle was harmless, and the test could not fail"


@pytest.mark.parametrize("alien", [np.array([{}], object), np.float64(1.0), np.random.default_rng(0), Path("x")])
def test_only_arrays_of_floats_are_allowed(saved: Callable[..., Predictor], alien: Any) -> None:
    with pytest.raises(CheckpointError, match="asks for more than tensors and NumPy arrays"):
        saved(parts(mu=alien))


def test_what_was_allowed_for_a_file_is_not_allowed_afterwards(saved: Callable[..., Predictor], tmp_path: Path) -> None:
    saved(parts())
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "SOME.pt", weights_only=True)


WRONG = [
    (parts(mu=np.zeros(8)), r"mu has shape \[8\]; \[32\] is needed with embeddings of 32: it was trained on another"),
    (parts(sd=None), "sd is missing"),
    (parts(state_dict={"f1.weight": torch.zeros(5, WIDTH)}), r"f1\.bias is missing"),
    (parts(state_dict=3), "state_dict is missing"),
    ([1, 2], "state_dict is missing"),
    (parts(mu=np.full(WIDTH, np.nan)), "mu holds values that are not finite"),
    (parts(levels="seven"), "levels is 'seven'"),
    (parts(outputs=3, levels=[*"ab"]), r"levels has 2 names, f2\.bias 3 values"),
]


@pytest.mark.parametrize(("contents", "message"), WRONG)
def test_what_is_wrong_is_named(saved: Callable[..., Predictor], contents: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        saved(contents)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.pt").write_bytes((HEADS / "AROU_regression.pt").read_bytes()[:-500])
    with pytest.raises(CheckpointError, match=r"cut\.pt is truncated or no torch file"):
        load_predictors([tmp_path / "cut.pt"], WIDTH)
    with pytest.raises(CheckpointError, match=r"nowhere\.pt does not exist"):
        load_predictors(tmp_path / "nowhere.pt", WIDTH)
    with pytest.raises(CheckpointError, match=r"has no \.pt or \.safetensors file in it"):
        load_predictors(tmp_path / "nowhere", WIDTH)
    with pytest.raises(CheckpointError, match=r"heads\.onnx is no \.pt or \.safetensors file"):
        load_predictors([tmp_path / "heads.onnx"], WIDTH)
