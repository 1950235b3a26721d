"""Loading VoiceCLAP as a head: options, where files come from, and that nothing is read or imported at other times."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scorers.voiceclap import load
from search import SpeechRequest
from tests.fake_hub import Hub
from tests.tiny_voiceclap import CPU, HEADS, SECOND, clip, head_of, noise, small_model

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_model(tmp_path)


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"query_from": "voice"}, "query_from: 'voice' is not known; allowed are instruction, text"),
    ({"model": "nowhere"}, "model: 'nowhere' is no folder that exists, and no hub id either"),
    ({"model": "/nowhere/at"}, "model: '/nowhere/at' is no folder that exists, and no hub id either"),
    ({"model": 3}, "model: 3 is a int"),
    ({"heads": []}, r"heads: \[\] is not allowed"),
    ({"heads": ["a.pt", 3]}, "heads: .* is not allowed"),
    ({"mean": 0.5}, r"mean: 0\.5 is a float"),
    ({"mean": "nowhere.npy"}, r"mean: nowhere\.npy cannot be read"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_options_are_checked(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(CPU, **({"model": str(folder), "heads": HEADS} | options))


def test_options_that_ask_for_nothing_are_refused(folder: Path) -> None:
    np.save(folder / "mean.npy", np.zeros(31))
    with pytest.raises(ValueError, match=r"float64 \[31\]; 32 finite floating point numbers are needed"):
        load(CPU, model=str(folder), mean=str(folder / "mean.npy"))
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        load(CPU, model=str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="nothing could be judged"):
        load(CPU, model=str(folder))
    with pytest.raises(ValueError, match=r"which needs tokenizer\.json"):
        load(CPU, model=str(folder), heads=HEADS, mean=str(folder / "mean.npy"))


def test_a_tokenizer_of_another_model_is_noticed(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("40", "97"))
    with pytest.raises(ValueError, match="gives token 97, the network knows 97"):
        load(CPU, model=str(folder)).head.prepare(SpeechRequest("x", instruction="voice"))


def test_a_hub_id_is_fetched_at_its_revision_without_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, files = Hub(folder, monkeypatch), ["config.json", "model.safetensors", "tokenizer.json"]
    load(CPU, model="some/model@v2", heads=HEADS)
    assert hub.calls == [("some/model", {"revision": "v2", "allow_patterns": files})]
    hub.answer = OSError
    with pytest.raises(ValueError, match=r"model: 'some/where' is no folder here; .* the hub cannot be reached"):
        load(CPU, model="some/where", heads=HEADS)


def test_all_files_are_read_while_loading(folder: Path, tmp_path: Path) -> None:
    """Some speech recognisers break `torch.load` in their process: no head may be opened after they have run."""
    heads = Path(shutil.copytree(HEADS, tmp_path / "heads"))
    head = head_of(load(CPU, model=str(folder), heads=str(heads)))
    shutil.rmtree(heads)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).unlink()
    (found,) = head.judge([clip(noise(SECOND), head.prepare(SpeechRequest("x", instruction="calm")))])
    assert np.isfinite(found.terms["style"])


def test_importing_the_head_imports_no_package_of_its_own() -> None:
    code = (
        "import sys, scorers.voiceclap\n"
        "print([name for name in ('transformers', 'tokenizers', 'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_a_mistake_is_told_before_the_weights_are_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"nowhere\.pt does not exist"):
        load(CPU, model=str(folder), heads="nowhere.pt")
    with pytest.raises(ValueError, match=r"model\.safetensors does not exist"):
        load(CPU, model=str(folder), heads=HEADS)
