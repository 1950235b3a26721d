"""Places of checkpoints: folders, hub ids, the cache, and one line for everything that can go wrong on the way."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codec.checkpoints.hub import FILES, located
from tests.fake_hub import GatedRepoError, Hub, RepositoryNotFoundError, RevisionNotFoundError

ROOT = Path(__file__).parents[1]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | type[Exception]], Hub]:
    return lambda answer: Hub(answer, monkeypatch)


def test_a_folder_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert located(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert located("~") == tmp_path


@pytest.mark.parametrize(
    ("place", "name", "revision"),
    [
        ("OpenMOSS-Team/MOSS-TTS-Local-Transformer-v1.5", "OpenMOSS-Team/MOSS-TTS-Local-Transformer-v1.5", None),
        ("laion/voice@v2-sft3", "laion/voice", "v2-sft3"),
        ("laion/voice@refs/pr/1", "laion/voice", "refs/pr/1"),
    ],
)
def test_an_id_is_fetched_at_its_revision_and_only_what_is_read(
    hub: Callable[[Path], Hub], tmp_path: Path, place: str, name: str, revision: str | None
) -> None:
    asked = hub(tmp_path)
    assert located(place) == tmp_path
    assert asked.calls == [(name, {"revision": revision, "allow_patterns": list(FILES)})]
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in FILES)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GatedRepoError, r"accept its terms on https://huggingface\.co/laion/voice, then run `hf auth login`"),
        (RepositoryNotFoundError, "the hub has no such checkpoint, or keeps it private; check the name"),
        (RevisionNotFoundError, "there is no revision 'v9' of it; leave it out for the newest"),
        (ConnectionError, r"the hub cannot be reached and the cache has no whole copy \(ConnectionError\); go online"),
    ],
)
def test_what_goes_wrong_is_one_line_with_a_cure(
    hub: Callable[[type[Exception]], Hub], error: type[Exception], message: str
) -> None:
    hub(error)
    with pytest.raises(ValueError, match=rf"'laion/voice' is no folder here; as a hub id: {message}") as caught:
        located("laion/voice@v9")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["nowhere", "./a/b", "/no/such/folder", "a/b/c", "a/b@"])
def test_what_is_neither_is_said_so(place: str, hub: Callable[[type[Exception]], Hub]) -> None:
    asked = hub(ConnectionError)
    with pytest.raises(ValueError, match="is no folder that exists, and no hub id either"):
        located(place)
    assert not asked.calls


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match="needs the package huggingface_hub: pip install huggingface_hub"):
        located("laion/voice")


def test_a_snapshot_in_the_cache_is_found_offline(tmp_path: Path) -> None:
    """The real package, in a process of its own: it reads its environment when it is imported."""
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install huggingface_hub")
    repository = tmp_path / "hub" / "models--laion--voice"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("HF_HUB_CACHE", None)
    code = """
import sys
from codec.checkpoints.hub import located
try:
    print(located(sys.argv[1]))
except ValueError as error:
    print(error)
"""

    def output(place: str) -> str:
        arguments = [sys.executable, "-c", code, place]
        return subprocess.run(arguments, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert Path(output("laion/voice").strip()).samefile(snapshot)
    assert "'laion/other' is no folder here; as a hub id: the hub cannot be reached" in output("laion/other")
