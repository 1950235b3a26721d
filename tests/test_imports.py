"""Who may import whom, and that the core needs torch and numpy alone."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ONLY_TORCH_AND_NUMPY = """
import sys
import numpy, torch, torch.utils._contextlib  # what they import themselves is theirs

class Refuse:
    allowed = set(sys.stdlib_module_names) | {"torch", "numpy", "search"}

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in self.allowed:
            raise ImportError(f"the core wants {name}")

before = set(sys.modules)
sys.meta_path.insert(0, Refuse())
import search
import search.config, search.protocols, search.state, search.noise, search.sampling, search.performance
from search import *
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)


def test_the_core_needs_torch_and_numpy_alone() -> None:
    done = python(ONLY_TORCH_AND_NUMPY)
    assert done.returncode == 0, done.stderr


def test_the_hook_refuses() -> None:
    """The test above could not fail if the hook let everything through."""
    done = python(ONLY_TORCH_AND_NUMPY + "\nimport safetensors")
    assert done.returncode == 1
    assert "the core wants safetensors" in done.stderr


def test_importing_the_core_changes_nothing_global() -> None:
    done = python(
        "import torch; before = (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype())\n"
        "import search\n"
        "assert before == (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype())"
    )
    assert done.returncode == 0, done.stderr


def test_the_public_door_is_narrow() -> None:
    import search

    assert sorted(search.__all__) == [
        "ChunkSearch",
        "Commit",
        "Sampling",
        "SearchConfig",
        "SearchFailed",
        "SearchInterrupted",
        "SearchResult",
        "SpeechRequest",
    ]
    assert all(hasattr(search, name) for name in search.__all__)


def test_the_arrow_of_imports() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([str(linter), "--no-cache"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
