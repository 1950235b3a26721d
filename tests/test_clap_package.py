"""The head on the `laion-clap` package, with random checkpoints in its format. What it finds means nothing."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scorers.clap import load
from scorers.clap.checkpoint import REMADE
from scorers.clap.package import FIRST_LAYER, hub_names_mean, imported_package
from scorers.rereader import Rereader
from search import SpeechRequest
from search.protocols import Scorer
from tests.contracts import ScorerLaws
from tests.tiny_clap import judged, no_network, sounds, write_text_model

pytestmark = [
    pytest.mark.checkpoint,
    pytest.mark.skipif(
        not find_spec("laion_clap"),
        reason="the package laion-clap wants numpy<2: pip install 'chunksearch[clap]' in an environment of its own",
    ),
]

CPU = torch.device("cpu")
CALM = SpeechRequest("x", instruction="Speak softly and slowly.")
ANGRY = SpeechRequest("x", instruction="Furious, shouting at the top of one's voice!")

NO_NETWORK = """
import os, socket

def refuse(*address, **_):
    print("tried to reach", address, flush=True)
    os._exit(3)

socket.socket.connect = socket.getaddrinfo = refuse
"""

RANDOM_CHECKPOINT = """
import sys
from pathlib import Path
import torch
from scorers.clap import load
from scorers.clap.package import hub_names_mean, imported_package
from search import SpeechRequest

text_model, checkpoint = sys.argv[1:]
with hub_names_mean(Path(text_model)):
    module = imported_package().CLAP_Module(enable_fusion=False, device="cpu")
torch.save(module.model.state_dict(), checkpoint)
head = load(torch.device("cpu"), model=checkpoint, text_model=text_model).head
print(len(head.prepare(SpeechRequest("x", instruction="softly")).embedding))
"""


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_model(tmp_path_factory.mktemp("clap") / "roberta")


@pytest.fixture(scope="module")
def theirs(text_model: Path) -> Iterator[Any]:
    """The package's own model with random weights and, as its sizes are no options, one block a stage from now on."""
    with no_network() as asked, pytest.MonkeyPatch.context() as patch:
        with hub_names_mean(text_model):
            package = imported_package()
            import clap_module.model

            make = clap_module.model.create_htsat_model

            def one_block_a_stage(*arguments: Any, **options: Any) -> Any:
                network = make(*arguments, **options)
                for stage in network.layers:
                    del stage.blocks[1:]
                return network

            patch.setattr(clap_module.model, "create_htsat_model", one_block_a_stage)
            made = package.CLAP_Module(enable_fusion=False, device="cpu").eval()
        yield made
    assert not asked


@pytest.fixture(scope="module")
def checkpoint(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As training on several GPUs with an older release of transformers wrote it."""
    state = {f"module.{name}": value for name, value in theirs.model.state_dict().items()}
    state[f"module.{REMADE}"] = torch.arange(514)[None]
    path = tmp_path_factory.mktemp("clap") / "630k.pt"
    torch.save({"epoch": 45, "name": "run", "best": np.float64(0.5), "state_dict": state}, path)
    return path


@pytest.fixture(scope="module")
def head(checkpoint: Path, text_model: Path) -> Any:
    with no_network() as asked:
        found = load(CPU, model=str(checkpoint), text_model=str(text_model)).head
    assert not asked
    return found


class TestAgainstThePackage:
    @pytest.mark.parametrize("which", [0, 2])
    def test_sounds_are_its_own(self, theirs: Any, head: Any, which: int) -> None:
        pcm = 4 * sounds()[which]
        query = head.prepare(CALM)
        with torch.inference_mode():
            embedding = torch.from_numpy(theirs.get_audio_embedding_from_data([pcm])[0])
        assert judged(head, query, pcm) == pytest.approx([float(embedding @ query.embedding)], abs=1e-6)

    def test_its_random_cut_is_ours_where_there_is_one_place_to_cut(self, theirs: Any, head: Any) -> None:
        pcm, query = sounds()[1], head.prepare(CALM)
        with torch.inference_mode():
            embedding = torch.from_numpy(theirs.get_audio_embedding_from_data([pcm[-480_000:]])[0])
        assert judged(head, query, pcm) == pytest.approx([float(embedding @ query.embedding)], abs=1e-6)

    def test_words_are_its_own(self, theirs: Any, head: Any) -> None:
        for request in (CALM, ANGRY, SpeechRequest("x", instruction="a" * 200)):
            with torch.inference_mode():
                embedding = theirs.get_text_embedding([request.instruction])[0]
            np.testing.assert_allclose(head.prepare(request).embedding.numpy(), embedding, atol=1e-6)

    def test_a_long_instruction_is_cut(self, head: Any) -> None:
        query = head.prepare(SpeechRequest("x", instruction="a" * 100))
        assert query.note == {"instruction_cut": "the first 77 of 102 tokens are compared"}


class TestNothingIsFetched:
    """In a process of its own, which ends when it looks for a network, with nothing in its caches."""

    def test_the_package_alone_looks_for_a_network_when_it_is_imported(self, tmp_path: Path) -> None:
        """What the head does about it is needed: if this fails, it no longer is."""
        run = self.run(tmp_path, "import laion_clap")
        assert run.returncode == 3, run.stderr
        assert "tried to reach" in run.stdout

    def test_the_head_does_not(self, tmp_path: Path, text_model: Path) -> None:
        run = self.run(tmp_path, RANDOM_CHECKPOINT, str(text_model), str(tmp_path / "random.pt"))
        assert (run.returncode, run.stdout.split()) == (0, ["512"]), run.stderr

    def run(self, empty: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"HF_HOME": str(empty), "HOME": str(empty), "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", NO_NETWORK + code, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.usefixtures("head")
def test_the_hubs_names_mean_what_they_did_afterwards() -> None:
    from transformers import RobertaModel, RobertaTokenizer

    assert "from_pretrained" not in vars(RobertaModel)
    assert "from_pretrained" not in vars(RobertaTokenizer)
    assert not [folder for folder in sys.path if folder.endswith("laion_clap")]


def test_batch_mates_change_nothing(head: Any) -> None:
    query, (a, b, c) = head.prepare(CALM), sounds()
    alone = [judged(head, query, pcm)[0] for pcm in (a, b, c)]
    assert len(set(alone)) == 3
    assert judged(head, query, a, b) == pytest.approx(alone[:2], abs=1e-6)
    assert judged(head, query, c, b, a) == pytest.approx(alone[::-1], abs=1e-6)


def test_chance_has_no_part_in_it(head: Any) -> None:
    query, long = head.prepare(CALM), sounds()[1]
    assert judged(head, query, long) == judged(head, query, long)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({FIRST_LAYER: None}, "only HTSAT audio networks"),
        ({FIRST_LAYER: torch.ones(256, 1, 4, 4)}, r"width 256; supported are 96 \(HTSAT-tiny\), 128 \(HTSAT-base\)"),
        ({"text_branch.embeddings.word_embeddings.weight": torch.ones(9, 768)}, "text_model must be the folder"),
        ({"audio_projection.0.bias": None}, r"'audio_projection\.0\.bias' is missing"),
    ],
)
def test_checkpoints_that_do_not_fit_are_named(
    theirs: Any, text_model: Path, tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    state = {**theirs.model.state_dict(), **changes}
    path = tmp_path / "other.pt"
    torch.save({name: value for name, value in state.items() if value is not None}, path)
    with pytest.raises(ValueError, match=rf"other\.pt.*{message}"):
        load(CPU, model=str(path), text_model=str(text_model))


class TestLaws(ScorerLaws):
    hop = 1920
    tolerance = 1e-5
    examples = 2

    @pytest.fixture
    def scorer(self, head: Any) -> Scorer:
        return Rereader(head)

    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        return [CALM, ANGRY, SpeechRequest("x")]

    @pytest.fixture
    def pcm(self) -> Tensor:
        return torch.from_numpy(sounds()[0])

    @pytest.fixture
    def rate(self) -> int:
        return 24_000
