"""The README is true: its example runs, its commands and its folders exist."""

from __future__ import annotations

import re
import wave
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert "frames are final after" in capsys.readouterr().out
    with wave.open("out/speech.wav") as file:
        assert file.getnframes() > 0


def test_make_has_the_commands() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


def test_the_build_runs_the_same_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_tree_and_the_links_name_what_exists() -> None:
    (tree,) = re.findall(r"```\n(search/ .*?)```", README, re.DOTALL)
    folder = ""
    for line in tree.splitlines():
        name = line.split()[0]
        path = folder + name if line.startswith(" ") else name
        folder = folder if line.startswith(" ") else name
        assert (ROOT / path).exists(), path
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link.partition("#")[0]).exists(), link
