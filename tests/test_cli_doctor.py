"""`doctor` and the help: what is there, what is missing, and what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from experiments.cli import run
from experiments.doctor import needed, older

pytestmark = pytest.mark.usefixtures("own_folder")


def test_help_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert run([]) == 0
    assert "say" in capsys.readouterr().out


def test_doctor_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    data = json.loads(capsys.readouterr().out)
    subjects = [finding["subject"] for finding in data["findings"]]
    assert {"Python", "CPU", "GPU", "player", "built-in voice", "built-in listener"} <= set(subjects)
    assert code == (0 if data["healthy"] else 1)
    assert all(finding["advice"] for finding in data["findings"] if finding["state"] == "missing")


def test_doctor_says_what_to_do_about_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requirements = ["no-such-package>=3", "torch>=99.1", 'no-such-judge>=1; extra == "evaluate"']
    monkeypatch.setattr("experiments.doctor.metadata.requires", lambda _: requirements)
    monkeypatch.setattr("experiments.doctor.metadata.version", _version)
    assert run(["doctor", "--json"]) == 1
    findings = {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["no-such-package"]["state"] == "missing"
    assert findings["torch"]["state"] == "missing"
    assert "older than 99.1" in findings["torch"]["found"]
    assert findings["extra 'evaluate'"]["state"] == "optional"
    assert ".[evaluate]" in findings["extra 'evaluate'"]["advice"]


def test_an_extra_of_extras_has_what_they_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requirements = [
        'no-such-ear>=1; extra == "ears"',
        'chunksearch[ears]; extra == "heads"',
        'chunksearch[heads,torso]; extra == "bodies"',
    ]
    monkeypatch.setattr("experiments.doctor.metadata.requires", lambda _: requirements)
    run(["doctor", "--json"])
    findings = {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    for extra in ("ears", "heads", "bodies"):
        assert findings[f"extra '{extra}'"]["found"] == "no-such-ear not installed"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("engine/builtin/model.safetensors", "model.safetensors cannot be read"),
        ("engine/builtin/config.json", "config.json cannot be read"),
        ("scorers/builtin/listener.safetensors", "listener.safetensors cannot be read"),
    ],
)
def test_doctor_opens_the_weights(
    name: str, fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("engine/builtin/model", "codec/builtin/model", "scorers/builtin/listener")
    for path in map(Path, files):
        path.parent.mkdir(parents=True)
        save_file({"weight": torch.zeros(2)}, f"{path}.safetensors")
        (path.parent / "config.json").write_text("{}")
    monkeypatch.setattr("experiments.doctor.resources.files", lambda package: Path(package).absolute())
    assert not _damaged(capsys)
    good = Path(name).read_bytes()
    Path(name).write_bytes(good[:-1])
    assert [fault in found for found in _damaged(capsys)] == [True]
    Path(name).unlink()
    assert [f"no {Path(name).name}" in found for found in _damaged(capsys)] == [True]


def _damaged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is said of weights that are missing."""
    run(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [
        finding["found"]
        for finding in findings
        if finding["subject"].startswith("built-in") and finding["state"] == "missing"
    ]


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    if name.startswith("no-such"):
        raise PackageNotFoundError(name)
    return "2.13.0+cpu"


def test_requirements_and_versions() -> None:
    assert needed("hibari-tts>=0.2.1") == ("hibari-tts", "0.2.1", "")
    assert needed("soxr>=0.5; extra == 'train'") == ("soxr", "0.5", "train")
    assert older("2.13.0+cpu", "2.14")
    assert not older("2.13.0+cpu", "2.6")
    assert not older("4.0", "")
