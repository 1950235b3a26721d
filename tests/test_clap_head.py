"""What CLAP's head does around its networks: ten seconds, queries, and what cannot be judged."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scorers.clap import load
from scorers.clap.head import Query, Style
from scorers.clap.waveform import SPAN, Waveform, sixteen_bit, spanned
from scorers.heads import Clip
from scorers.rereader import Rereader
from search import SpeechRequest
from tests.tiny_clap import judged, write_text_model

CPU = torch.device("cpu")
LOUD = np.full(100, 0.5, np.float32)


class Words:
    """Towers that count: a text's unit vector is told by its first letter, a sound's by its first sample."""

    device = CPU

    def __init__(self) -> None:
        self.read: list[str] = []
        self.batches: list[int] = []

    def tokens(self, text: str) -> int:
        return len(text.split()) + 2

    def words(self, text: str) -> Tensor:
        self.read.append(text)
        return torch.eye(26)[ord(text[0]) - ord("a")]

    def sounds(self, audio: Waveform) -> Tensor:
        assert audio.shape[1] == SPAN
        self.batches.append(len(audio))
        return torch.eye(26)[(audio[:, 0] * 10).astype(int)]


class TestTenSeconds:
    @pytest.mark.parametrize("size", [1, 7, 1000, 333_333, SPAN - 1])
    def test_shorter_audio_is_repeated_whole_and_then_silent(self, size: int) -> None:
        pcm = np.arange(1, size + 1, dtype=np.float32)
        heard, times = spanned(pcm), SPAN // size
        assert heard.shape == (SPAN,)
        assert (heard[: times * size].reshape(times, size) == pcm).all()
        assert not heard[times * size :].any()

    @pytest.mark.parametrize("size", [SPAN, SPAN + 1, 3 * SPAN])
    def test_the_last_ten_seconds_of_longer_audio_are_heard(self, size: int) -> None:
        pcm = np.arange(size, dtype=np.float32)
        np.random.seed(0)  # noqa: NPY002 - the generator that LAION's code draws its cut from
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        assert (spanned(pcm) == pcm[-SPAN:]).all()
        assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_sixteen_bits_round_toward_zero_and_clip() -> None:
    step = np.float32(1 / 32_767)
    pcm = np.array([0.0, 0.9 * step, -0.9 * step, 1.9 * step, -1.9 * step, 0.5, 1.0, 1.5, -1.5], np.float32)
    there = sixteen_bit(pcm)
    assert there.dtype == np.float32
    np.testing.assert_array_equal(there * 32_767, [0, 0, 0, 1, -1, 16_383, 32_767, 32_767, -32_767])
    np.testing.assert_array_equal(sixteen_bit(there), there)


class TestQueries:
    def test_an_instruction_is_read_once_a_request(self) -> None:
        towers = Words()
        scorer = Rereader(Style(towers))
        requests = [SpeechRequest("x", instruction=text) for text in (" calm ", "angry")]
        stream = scorer.open(requests, 3, 48_000, 8)
        pcm = torch.full((6, 80), 0.25)
        for _ in range(4):
            scores = stream.score(pcm, torch.full((6,), 80), torch.zeros(6, dtype=torch.bool))
        assert towers.read == ["calm", "angry"]
        assert towers.batches == [6] * 4
        assert scores.heads["clap"].tolist() == [1.0] * 3 + [0.0] * 3
        assert torch.equal(scores.reward, scores.heads["clap"])

    @pytest.mark.parametrize("instruction", [None, "", "  \n"])
    def test_without_an_instruction_there_is_nothing_to_compare(self, instruction: str | None) -> None:
        towers = Words()
        head = Style(towers)
        prepared = head.prepare(SpeechRequest("x", instruction=instruction))
        (found,) = head.judge([Clip(LOUD, 0, True, prepared)])
        assert np.isnan(found.terms["clap"])
        assert found.note == {"not_judged": "the request has no instruction"}
        assert not towers.read
        assert not towers.batches

    def test_rows_without_one_stand_beside_rows_with_one(self) -> None:
        towers = Words()
        head = Style(towers)
        query = head.prepare(SpeechRequest("x", instruction="f"))
        found = head.judge([Clip(LOUD, 0, True, prepared) for prepared in (None, query, None)])
        assert [one.terms["clap"] for one in found] == pytest.approx([np.nan, 1.0, np.nan], nan_ok=True)
        assert towers.batches == [1]

    @pytest.mark.parametrize(("words", "note"), [(75, None), (76, "the first 77 of 78 tokens are compared")])
    def test_an_instruction_that_is_cut_says_so(self, words: int, note: str | None) -> None:
        head = Style(Words())
        query = head.prepare(SpeechRequest("x", instruction=" ".join(["calm"] * words)))
        (found,) = head.judge([Clip(LOUD, 0, True, query)])
        assert found.note.get("instruction_cut") == note
        assert not np.isnan(found.terms["clap"])


def test_silence_has_no_style() -> None:
    head = Style(Words())
    query = Query(torch.ones(26), {})
    (found,) = head.judge([Clip(np.full(100, 9e-4, np.float32), 0, True, query)])
    assert found.note == {"not_judged": "silent"}
    long_ago = np.concatenate([LOUD, np.zeros(SPAN)])
    assert judged(head, query, np.zeros(1), LOUD, long_ago) == pytest.approx([np.nan, 1, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "m.pt", "backend": "msclap"}, r"backend: 'msclap'.*auto, laion, transformers"),
        ({"model": "some/repository", "text_model": "r"}, r"text_model: 'r'.*'laion'"),
        ({"model": "m.pt", "backend": "transformers", "text_model": "r"}, r"text_model: 'r'.*'laion'"),
        ({"model": "m.pt"}, r"text_model: missing.*config\.json, vocab\.json, merges\.txt"),
        ({"model": "m.pt", "text_model": "/nowhere"}, r"text_model: '/nowhere' has no config\.json"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_loaded(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(CPU, **options)


@pytest.mark.parametrize(
    ("backend", "package", "extra"), [("laion", "laion_clap", "clap"), ("transformers", "transformers", "clap-hf")]
)
def test_a_missing_package_is_answered_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, package: str, extra: str
) -> None:
    pytest.importorskip("transformers", reason="pip install chunksearch[clap-hf]")
    checkpoint, text_model = tmp_path / "clap.pt", write_text_model(tmp_path / "roberta")
    checkpoint.write_bytes(b"not read")
    monkeypatch.setitem(sys.modules, package, None)
    options = {"model": str(checkpoint), "text_model": str(text_model)} if backend == "laion" else {"model": "a/b"}
    with pytest.raises(ValueError, match=rf"'{backend}' needs the package '{package}'.*chunksearch\[{extra}\]"):
        load(CPU, **options)
