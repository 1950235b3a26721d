"""The head on transformers' `ClapModel`: a random checkpoint in its format. What it finds means nothing."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorers.clap import load
from scorers.clap.head import TEXT_TOKENS
from scorers.clap.hub import folder_of
from scorers.rereader import Rereader
from search import SpeechRequest
from search.protocols import Scorer
from tests.contracts import ScorerLaws
from tests.fake_hub import Hub
from tests.tiny_clap import judged, no_network, sounds, write_hub_folder

pytest.importorskip("transformers", reason="pip install chunksearch[clap-hf]")

CPU = torch.device("cpu")
CALM = SpeechRequest("x", instruction="Speak softly and slowly.")
ANGRY = SpeechRequest("x", instruction="Furious, shouting at the top of one's voice!")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hub_folder(tmp_path_factory.mktemp("clap") / "hub")


@pytest.fixture(scope="module")
def head(folder: Path) -> Any:
    with no_network() as asked:
        found = load(CPU, model=str(folder)).head
    assert not asked
    return found


class TestAgainstTransformers:
    def test_the_cosine_is_its_own(self, folder: Path, head: Any) -> None:
        from transformers import ClapModel, ClapProcessor

        network: Any = ClapModel.from_pretrained(folder, local_files_only=True)
        processor: Any = ClapProcessor.from_pretrained(folder, local_files_only=True)
        for pcm in (sounds()[0], sounds()[2]):
            features = processor.feature_extractor(pcm, sampling_rate=48_000, return_tensors="pt")
            text = processor.tokenizer(CALM.instruction, return_tensors="pt")
            with torch.inference_mode():
                found = network(**text, input_features=features["input_features"])
            theirs = float(found.audio_embeds[0] @ found.text_embeds[0])
            assert judged(head, head.prepare(CALM), pcm) == pytest.approx([theirs], abs=1e-5)

    def test_a_long_instruction_is_cut(self, head: Any) -> None:
        letters = TEXT_TOKENS - 2
        exact, longer = ("a" * size for size in (letters, letters + 60))
        one, other = (head.prepare(SpeechRequest("x", instruction=text)) for text in (exact, longer))
        assert torch.equal(one.embedding, other.embedding)
        assert not one.note
        assert other.note == {"instruction_cut": "the first 77 of 137 tokens are compared"}


def test_batch_mates_change_nothing(head: Any) -> None:
    query, (a, b, c) = head.prepare(CALM), sounds()
    alone = [judged(head, query, pcm)[0] for pcm in (a, b, c)]
    assert len(set(alone)) == 3
    assert judged(head, query, a, b) == pytest.approx(alone[:2], abs=1e-6)
    assert judged(head, query, b, a) == pytest.approx(alone[1::-1], abs=1e-6)
    assert judged(head, query, c, np.zeros(9), b, a)[2:] == pytest.approx(alone[1::-1], abs=1e-6)


def test_chance_has_no_part_in_it(head: Any) -> None:
    """transformers, like LAION's code, cuts ten seconds at a random place out of longer audio."""
    query, long = head.prepare(CALM), sounds()[1]
    assert judged(head, query, long) == judged(head, query, long) == judged(head, query, long[-480_000:])
    changed = long.copy()
    changed[-24_000:] = 0
    assert judged(head, query, changed) != judged(head, query, long)


def test_words_and_sounds_both_count(head: Any, spoken: Callable[[str], NDArray[np.float32]]) -> None:
    """Speech at 24 kHz, by way of the scorer; with random weights no order can be asked for."""
    scorer = Rereader(head)
    speech = torch.from_numpy(spoken("Come back soon.").copy())
    noisy = speech + 0.3 * torch.randn(len(speech))
    stream = scorer.open([CALM, ANGRY], 2, 24_000, 1920)
    rows = torch.stack([speech, noisy, speech, noisy])
    lengths = torch.full((4,), len(speech))
    scores = stream.score(rows, lengths, torch.ones(4, dtype=torch.bool))
    assert len(set(scores.heads["clap"].tolist())) == 4
    assert bool((scores.heads["clap"].abs() <= 1).all())


class TestWhatCannotBeLoaded:
    def test_feature_fusion(self, tmp_path: Path) -> None:
        folder = write_hub_folder(tmp_path / "fused", enable_fusion=True, fusion_type="aff_2d")
        with pytest.raises(ValueError, match=r"fused' has feature fusion.*unfused"):
            load(CPU, model=str(folder))

    def test_weights_of_something_else(self, folder: Path, tmp_path: Path) -> None:
        """transformers draws missing weights by chance, and only warns."""
        from safetensors.torch import load_file, save_file

        other = Path(shutil.copytree(folder, tmp_path / "other"))
        weights = load_file(other / "model.safetensors")
        del weights["audio_projection.linear1.weight"]
        save_file(weights, other / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError, match=r"other': 'audio_projection\.linear1\.weight' is missing"):
            load(CPU, model=str(other))

    def test_another_sample_rate(self, tmp_path: Path) -> None:
        folder = write_hub_folder(tmp_path / "other", sample_rate=44_100)
        with pytest.raises(ValueError, match=r"hears .* at 44100 Hz; 480000 at 48000 Hz are needed"):
            load(CPU, model=str(folder))

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with no_network() as asked, pytest.raises(ValueError, match=r"model: '.*' cannot be loaded as a CLAP"):
            load(CPU, model=str(tmp_path))
        assert not asked

    def test_a_repository_that_no_hub_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with no_network(), pytest.raises(ValueError, match=r"model: 'nobody/nothing' is no folder here; as a hub id"):
            load(CPU, model="nobody/nothing")


class TestFromTheHub:
    def test_a_revision_is_fetched_and_pickled_weights_are_left_there(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub = Hub(folder, monkeypatch)
        assert folder_of("laion/some@v2") == folder
        assert [(name, asked["revision"]) for name, asked in hub.calls] == [("laion/some", "v2")]
        assert not any("bin" in pattern for pattern in hub.calls[0][1]["allow_patterns"])

    def test_pickled_weights_are_fetched_where_there_are_no_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub = Hub(tmp_path, monkeypatch)
        assert folder_of("laion/some") == tmp_path
        assert ["pytorch_model.bin" in asked["allow_patterns"] for _, asked in hub.calls] == [False, True]


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
