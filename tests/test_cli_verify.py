"""`verify`: bundles that agree, that differ, and that are none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from experiments.cli import run

pytestmark = pytest.mark.usefixtures("own_folder")

GOLDEN = Path(__file__).parent / "golden" / "moss_local"


def test_verify_accepts_the_golden_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "moss", str(GOLDEN), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"]
    assert all(check["passed"] for check in data["checks"])


def test_verify_names_the_tensor_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = shutil.copytree(GOLDEN, tmp_path / "bundle")
    tensors = load_file(bundle / "golden.safetensors")
    name = next(name for name in sorted(tensors) if name.endswith("guided_audio_logits"))
    save_file(tensors | {name: tensors[name] + 0.01}, bundle / "golden.safetensors")
    assert run(["verify", "moss", str(bundle)]) == 1
    printed = capsys.readouterr()
    assert f"tensors differ: {name}" in printed.err
    assert "beyond tolerance" in printed.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["parrot", "."], "known are moss"),
        (["moss", "no/such"], "no/such is not a folder"),
        (["moss", "."], "config.json"),
    ],
)
def test_verify_refuses_what_is_no_bundle(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", *arguments]) == 2
    assert complaint in capsys.readouterr().err
