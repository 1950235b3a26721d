"""VoiceCLAP as a head: one embedding a clip, whoever it is heard with, read by predictors and compared with a style.

The weights are random and tiny: nothing here says that a judgement is any good.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorers.heads import Clip, Judgement
from scorers.voiceclap.network import VoiceClap
from scorers.voiceclap.scorer import load
from search import SpeechRequest
from search.protocols import Scorer
from tests.contracts import ScorerLaws
from tests.tiny_voiceclap import BUNDLE, CPU, HEADS, SECOND, clip, head_of, noise, small_model

Speak = Callable[[str], NDArray[np.float32]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_model(tmp_path)


@pytest.fixture
def encoded(folder: Path) -> Iterator[list[int]]:  # noqa: ARG001 - skips with it
    """Clips in every pass through the network."""
    batches: list[int] = []
    embed = VoiceClap.embed_audio

    def counting(network: VoiceClap, waves: Tensor) -> Tensor:
        batches.append(len(waves))
        return embed(network, waves)

    with mock.patch.object(VoiceClap, "embed_audio", counting):
        yield batches


def test_terms_follow_from_the_files(folder: Path) -> None:
    predicted = ["genuineness", "blend", "AROU_classification", "AROU_regression"]
    assert [term.name for term in load(CPU, model=str(folder), heads=HEADS).terms] == [*predicted, "style"]
    assert [term.name for term in load(CPU, model=str(folder)).terms] == ["style"]
    (folder / "tokenizer.json").unlink()
    one = load(CPU, model=str(folder), heads=[f"{HEADS}/blend_head_commercial.pt"])
    assert [(term.name, term.better, term.meaning) for term in one.terms] == [("blend", "higher", "0 to 10")]
    assert (one.name, one.rereads, head_of(one).sample_rate) == ("voiceclap", True, SECOND)


def test_one_encode_serves_every_term(folder: Path, encoded: list[int]) -> None:
    head = head_of(load(CPU, model=str(folder), heads=HEADS))
    (found,) = head.judge([clip(noise(SECOND), head.prepare(SpeechRequest("x", instruction="calm")))])
    assert encoded == [1]
    assert len(found.terms) == 5
    assert all(np.isfinite(value) for value in found.terms.values())
    assert found.note.keys() == {"AROU_classification_class"}
    assert found.note.keys().isdisjoint(found.terms), "a note would take the place of a term in records"


def test_terms_are_those_of_the_embedding(folder: Path) -> None:
    head = head_of(load(CPU, model=str(folder), heads=HEADS))
    pcm = noise(SECOND)
    (embedding,) = head.embed([clip(pcm)])
    assert float(embedding.norm()) == pytest.approx(1.0, abs=1e-6)
    query = head.prepare(SpeechRequest("x", instruction="angry voice"))
    (found,) = head.judge([clip(pcm, query)])
    regression = next(one for one in head._predictors if one.name == "AROU_regression")
    assert found.terms["AROU_regression"] == pytest.approx(min(max(float(regression.outputs(embedding)), 0.0), 6.0))
    assert query.embedding is not None
    assert found.terms["style"] == pytest.approx(float(embedding @ query.embedding), abs=1e-6)


def test_a_clip_does_not_hear_its_neighbours(folder: Path) -> None:
    """Bitwise, on a CPU: a quiet clip beside a loud one, which training's common floor would let through."""
    quiet, loud = clip(noise(8_000, 1e-4)), clip(noise(SECOND, 1.0))

    def alone_and_together(order: Sequence[Clip]) -> list[Judgement]:
        return head_of(load(CPU, model=str(folder), heads=HEADS)).judge(order)

    first, second = alone_and_together([quiet]), alone_and_together([loud])
    assert str(first[0].terms) != str(second[0].terms)
    assert str(alone_and_together([quiet, loud])) == str([*first, *second])
    assert str(alone_and_together([loud, quiet])) == str([*second, *first])


def test_a_batch_on_an_accelerator_rounds_and_no_more(folder: Path) -> None:
    """What a CUDA device does with eight clips at once, tried on a CPU; 1e-5 of unit vectors."""
    network = head_of(load(CPU, model=str(folder), heads=HEADS))._network
    waves = torch.stack([noise(SECOND, 10.0**-power) for power in range(8)])
    together = network.embed_audio(waves)
    alone = torch.cat([network.embed_audio(wave[None]) for wave in waves])
    assert float((together - alone).abs().max()) < 1e-5
    assert float((alone[0] - alone[1]).abs().max()) > 1e-3


def test_what_did_not_change_is_not_encoded_again(folder: Path, encoded: list[int]) -> None:
    head = head_of(load(CPU, model=str(folder), heads=HEADS))
    pcm, other = noise(SECOND), noise(SECOND)
    before = head.judge([clip(pcm), clip(pcm)])
    assert encoded == [1]
    assert str(before[0]) == str(before[1])
    after = head.judge([clip(pcm), clip(other), clip(torch.cat([pcm, noise(160)]))])
    assert encoded == [1, 1]  # the third is heard for one second only, and that second is known
    assert after[0].terms == pytest.approx(before[0].terms, nan_ok=True)
    for _ in range(70):
        head.judge([clip(noise(400))])
    assert len(head._known) == 64
    head.judge([clip(pcm)])
    assert len(encoded) == 2 + 70 + 1


def test_the_rest_of_a_long_clip_is_not_heard_and_that_is_said(folder: Path) -> None:
    head = head_of(load(CPU, model=str(folder), heads=HEADS))
    pcm = noise(3 * SECOND)
    whole, start = head.judge([clip(pcm), clip(pcm[:SECOND])])
    assert str(whole.terms) == str(start.terms)
    assert whole.note["heard_seconds"] == 1.0
    assert "heard_seconds" not in start.note


def test_without_an_instruction_there_is_no_style(folder: Path) -> None:
    head = head_of(load(CPU, model=str(folder), heads=HEADS))
    for instruction in (None, "  "):
        (found,) = head.judge([clip(noise(SECOND), head.prepare(SpeechRequest("x", instruction=instruction)))])
        assert np.isnan(found.terms["style"])
        assert found.note["not_judged"] == "style: the request has no instruction"
        assert np.isfinite(found.terms["genuineness"])
    head = head_of(load(CPU, model=str(folder), query_from="text"))
    assert head.prepare(SpeechRequest("calm voice")).embedding is not None


def test_a_query_is_embedded_once_a_request(folder: Path) -> None:
    scorer = load(CPU, model=str(folder), heads=HEADS)
    requests = [SpeechRequest("x", instruction="calm"), SpeechRequest("y", instruction="angry")]
    with mock.patch.object(VoiceClap, "embed_text", autospec=True, side_effect=VoiceClap.embed_text) as embedded:
        stream = scorer.open(requests, 2, SECOND, 160)
        for _ in range(3):
            scores = stream.score(noise(1600).expand(4, -1), torch.full((4,), 1600), torch.zeros(4, dtype=torch.bool))
        assert embedded.call_count == 2
    style = scores.heads["style"].tolist()
    assert style[0] == style[1] != style[2] == style[3]


def test_a_long_instruction_is_cut_where_the_model_ends(folder: Path) -> None:
    head = head_of(load(CPU, model=str(folder), heads=HEADS))
    longest, longer = (head.prepare(SpeechRequest("x", instruction="calm " * words)) for words in (64, 600))
    assert longest.embedding is not None
    assert longer.embedding is not None
    assert torch.equal(longest.embedding, longer.embedding)


def test_a_mean_is_subtracted_from_both_sides(folder: Path, tmp_path: Path) -> None:
    mean = torch.randn(32) * 0.1
    np.save(tmp_path / "mean.npy", mean.double().numpy())
    head = head_of(load(CPU, model=str(folder), mean=str(tmp_path / "mean.npy")))
    query = head.prepare(SpeechRequest("x", instruction="calm"))
    assert query.embedding is not None
    (found,) = head.judge([clip(pcm := noise(SECOND), query)])
    audio, text = head.embed([clip(pcm)])[0] - mean, query.embedding - mean
    assert found.terms["style"] == pytest.approx(float(audio @ text / (audio.norm() * text.norm())), abs=1e-6)


def test_audio_beyond_arithmetic_is_not_judged(folder: Path) -> None:
    head = head_of(load(CPU, model=str(folder), heads=HEADS))
    (found,) = head.judge([clip(noise(SECOND, 1e30))])
    assert all(np.isnan(value) for value in found.terms.values())
    assert "too loud" in found.note["not_judged"]


def test_speech_goes_through(spoken: Speak) -> None:
    """The whole 30 s of the bundle's model, and audio at another rate: every term is within its scale."""
    scorer = load(CPU, model=str(BUNDLE), heads=HEADS)
    pcm = torch.from_numpy(spoken("Come back soon.").copy())[None]
    stream = scorer.open([SpeechRequest("Come back soon.")], 1, 24_000, 1920)
    scores = stream.score(pcm, torch.tensor([pcm.shape[1]]), torch.ones(1, dtype=torch.bool))
    for term, end in (("genuineness", 6.0), ("blend", 10.0), ("AROU_regression", 6.0), ("AROU_classification", 6.0)):
        assert 0.0 <= float(scores.heads[term]) <= end
    assert torch.equal(scores.reward, scores.heads["genuineness"])


class TestLaws(ScorerLaws):
    """Bitwise: on a CPU every clip goes through the network by itself."""

    hop = 480
    examples = 6

    @pytest.fixture
    def scorer(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scorer:
        # Otherwise the row alone would be given the embedding that it got among the others.
        monkeypatch.setattr("scorers.voiceclap.scorer._REMEMBERED", 0)
        return load(CPU, model=str(folder), heads=HEADS)

    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        return [SpeechRequest("one", instruction="calm"), SpeechRequest("two"), SpeechRequest("x", instruction="angry")]

    @pytest.fixture
    def pcm(self) -> Tensor:
        return noise(24_000)

    @pytest.fixture
    def rate(self) -> int:
        return 24_000

    def test_law_9_work_does_not_grow(self, scorer: Scorer) -> None:
        assert scorer.rereads, "a head that hears everything again says so"
