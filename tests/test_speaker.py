"""Whose voice it is: real speech, the same speech of a smaller and a larger speaker, and what is no speech at all."""

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorers.heads import Clip
from scorers.speaker import SAMPLE_RATE, SPAN, STEP, load, windows_of
from search import SpeechRequest
from search.protocols import Scorer
from tests.contracts import ScorerLaws

pytest.importorskip("librosa", reason="pip install chunksearch[speaker]")
if find_spec("resemblyzer") is None:  # importing it would import more than is needed
    pytest.skip("pip install chunksearch[speaker]", allow_module_level=True)

Sound = NDArray[np.float32]
Speak = Callable[[str], Sound]
CPU = torch.device("cpu")
TEXT = "The tall man walks to the old house with a dog."
OTHER_TEXT = "Please bring the blue book and a cup of tea to the garden."
LONG_TEXT = "My sister lives in a small house near the river with two old dogs."
HOP = 1920


@pytest.fixture(scope="module")
def head() -> Any:
    return load(CPU).head


@pytest.fixture(scope="module")
def known(head: Any, spoken: Speak) -> Tensor:
    return head.prepare(SpeechRequest("x", reference=(spoken(TEXT), 24_000)))


def at_16k(pcm: Sound) -> Sound:
    return soxr.resample(pcm, 24_000, SAMPLE_RATE).astype(np.float32)


def other_speaker(pcm: Sound, ratio: float) -> Sound:
    """The same words from a throat whose pitch and resonances are all `ratio` times as high."""
    return soxr.resample(pcm, ratio, 1.0).astype(np.float32)


def likeness(head: Any, known: Tensor | None, *clips: Sound, committed: int = 0) -> list[float]:
    found = head.judge([Clip(pcm.astype(np.float32), committed, True, known) for pcm in clips])
    return [judgement.terms["speaker"] for judgement in found]


class TestAgainstThePackage:
    @pytest.mark.parametrize("seconds", [0.7, 1.36, 1.7, 2.88, 6.4])
    @pytest.mark.parametrize("gain", [1.0, 0.01])
    def test_embeddings_are_its_own(
        self, monkeypatch: pytest.MonkeyPatch, head: Any, spoken: Speak, seconds: float, gain: float
    ) -> None:
        for name in ("webrtcvad", "scipy.ndimage.morphology"):  # imported there, not used here
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["scipy.ndimage.morphology"].binary_dilation = None
        from resemblyzer import VoiceEncoder, normalize_volume

        pcm = gain * np.resize(at_16k(spoken(TEXT)), int(seconds * SAMPLE_RATE))
        theirs = VoiceEncoder(CPU, verbose=False).embed_utterance(normalize_volume(pcm, -30, increase_only=True))
        np.testing.assert_allclose(head.embed([pcm])[0].numpy(), theirs, atol=1e-5)


class TestVoices:
    @pytest.mark.parametrize("ratio", [0.8, 1.25])
    @pytest.mark.parametrize("text", [TEXT, OTHER_TEXT, LONG_TEXT])
    def test_another_voice_is_clearly_lower(
        self, head: Any, known: Tensor, spoken: Speak, text: str, ratio: float
    ) -> None:
        pcm = at_16k(spoken(text))
        same, other = likeness(head, known, pcm, other_speaker(pcm, ratio))
        assert same > 0.8 > other
        assert same > other + 0.1

    def test_the_reference_itself_is_one(self, head: Any, known: Tensor, spoken: Speak) -> None:
        assert likeness(head, known, at_16k(spoken(TEXT)))[0] == pytest.approx(1.0, abs=1e-3)

    def test_a_voice_that_drifts_away_is_lower(self, head: Any, known: Tensor, spoken: Speak) -> None:
        first, second = at_16k(spoken(OTHER_TEXT)), at_16k(spoken(LONG_TEXT))
        steady, drifting = likeness(
            head, known, np.concatenate([first, second]), np.concatenate([first, other_speaker(second, 0.8)])
        )
        assert steady > drifting + 0.05

    def test_only_the_end_is_judged(self, head: Any, known: Tensor, spoken: Speak) -> None:
        end = np.resize(at_16k(spoken(LONG_TEXT)), SPAN)
        before = other_speaker(at_16k(spoken(OTHER_TEXT)), 0.8)
        alone, after = likeness(head, known, end, np.concatenate([before, end]))
        assert alone == after

    def test_more_noise_is_less_like_the_speaker(self, head: Any, known: Tensor, spoken: Speak) -> None:
        pcm = at_16k(spoken(TEXT))
        noise = np.random.default_rng(0).standard_normal(len(pcm)) * np.sqrt(np.mean(pcm**2))
        clean, some, much, only = likeness(head, known, pcm, pcm + noise / 10, pcm + noise, noise)
        assert clean > some + 0.1
        assert some > much + 0.1
        assert only < 0.6

    def test_silence_after_speech_is_no_other_voice(self, head: Any, known: Tensor, spoken: Speak) -> None:
        pcm = at_16k(spoken(OTHER_TEXT))
        quiet, bare = likeness(head, known, np.concatenate([pcm, np.zeros(3 * SAMPLE_RATE)]), pcm)
        assert quiet == pytest.approx(bare, abs=0.05)


class TestWhatCannotBeJudged:
    @pytest.mark.parametrize(
        ("pcm", "committed", "prepared", "reason"),
        [
            (np.zeros(2 * SAMPLE_RATE), 0, torch.ones(256), "silent"),
            (np.ones(7_999), 0, torch.ones(256), "0.50 s are too short"),
            (np.ones(1), 0, torch.ones(256), "too short"),
            (np.ones(3 * SAMPLE_RATE), 15_999, None, "no reference yet"),
            (np.ones(SAMPLE_RATE + 100), SAMPLE_RATE, None, "too short"),
            (np.repeat([0.0, 1.0], SAMPLE_RATE), SAMPLE_RATE, None, "the first second is silent"),
        ],
    )
    def test_it_says_why(self, head: Any, pcm: Sound, committed: int, prepared: Tensor | None, reason: str) -> None:
        (judgement,) = head.judge([Clip(pcm.astype(np.float32), committed, False, prepared)])
        assert np.isnan(judgement.terms["speaker"])
        assert reason in judgement.note["not_judged"]


def test_batch_mates_change_nothing(head: Any, known: Tensor, spoken: Speak) -> None:
    one, other = at_16k(spoken(TEXT)), at_16k(spoken(LONG_TEXT))[:20_000]
    alone = [*likeness(head, known, one), *likeness(head, known, other)]
    silence = np.zeros(SAMPLE_RATE)
    assert likeness(head, known, one, other) == pytest.approx(alone, abs=1e-6)
    assert likeness(head, known, other, silence, one)[::2] == pytest.approx(alone[::-1], abs=1e-6)
    assert likeness(head, known, *[one] * 7, other)[-1] == pytest.approx(alone[1], abs=1e-6)


class TestOwnFirstSecond:
    """Without a reference, what a request has committed stands for its speaker."""

    def test_it_counts_once_it_is_committed(self, spoken: Speak) -> None:
        pcm = spoken(LONG_TEXT)[: 30 * HOP]
        changed = np.concatenate([pcm[: 14 * HOP], other_speaker(pcm[14 * HOP :], 0.8)[: 16 * HOP]])
        changed = np.pad(changed, (0, len(pcm) - len(changed)))
        rows = torch.from_numpy(np.stack([pcm, changed]))
        stream = load(CPU).open([SpeechRequest(LONG_TEXT)], 2, 24_000, HOP)
        running = torch.tensor([False, False])

        before = stream.score(rows[:, : 20 * HOP], torch.tensor([20 * HOP] * 2), running)
        assert bool(before.reward.isnan().all())
        assert "no reference yet" in before.notes[0]["not_judged"]

        stream.commit(torch.tensor([13]))
        same, other = stream.score(rows[:, 20 * HOP :], torch.tensor([10 * HOP] * 2), running).reward.tolist()
        assert same > other + 0.05

    def test_it_is_not_compared_with_itself(self, head: Any, spoken: Speak) -> None:
        pcm = at_16k(spoken(LONG_TEXT))
        first, rest = pcm[:SAMPLE_RATE], pcm[SAMPLE_RATE:]
        expected = likeness(head, head.embed([first])[0], rest)
        assert likeness(head, None, pcm, committed=SAMPLE_RATE) == pytest.approx(expected, abs=1e-6)

    def test_a_reference_comes_first(self, head: Any, known: Tensor, spoken: Speak) -> None:
        pcm = at_16k(spoken(LONG_TEXT))
        assert likeness(head, known, pcm, committed=SAMPLE_RATE) == likeness(head, known, pcm)


class TestReferences:
    def test_a_file_and_samples_are_one_voice(self, head: Any, known: Tensor, spoken: Speak, tmp_path: Path) -> None:
        pcm = soxr.resample(spoken(TEXT), 24_000, 44_100)
        soundfile.write(tmp_path / "voice.flac", np.stack([pcm, pcm], 1), 44_100)
        stored = head.prepare(SpeechRequest("x", reference=tmp_path / "voice.flac"))
        assert float(stored @ known) > 0.99

    def test_none_is_none(self, head: Any) -> None:
        assert head.prepare(SpeechRequest("x")) is None

    @pytest.mark.parametrize(
        ("reference", "said"),
        [
            ("nowhere.wav", "reference: 'nowhere.wav' cannot be read"),
            ((np.zeros(48_000, np.float32), 24_000), "reference: silent"),
            ((np.ones(100, np.float32), 24_000), "reference: 0.00 s are too short"),
            ((np.ones((2, 48_000), np.float32), 24_000), r"shape \(2, 48000\)"),
            ((np.ones(48_000, np.float32), 0), "at 0 Hz"),
            ((np.full(48_000, np.nan, np.float32), 24_000), "some samples are no finite numbers"),
        ],
    )
    def test_errors_are_told_before_anything_is_spoken(self, reference: Any, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            load(CPU).open([SpeechRequest("x", reference=reference)], 1, 24_000, HOP)


class TestWeights:
    def test_a_missing_file_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"weights: 'nowhere\.pt' is no file"):
            load(CPU, weights="nowhere.pt")
        with pytest.raises(ValueError, match=r"weights: 3 is no path"):
            load(CPU, weights=3)  # type: ignore[arg-type]

    def test_another_format_is_told(self, tmp_path: Path) -> None:
        torch.save({"model_state": {"lstm.weight_ih_l0": torch.zeros(1)}}, tmp_path / "other.pt")
        with pytest.raises(ValueError, match=r"other\.pt' is not in the format"):
            load(CPU, weights=str(tmp_path / "other.pt"))


def test_windows_cover_speech_and_leave_silence_out(spoken: Speak) -> None:
    pcm = np.resize(at_16k(spoken(TEXT)), 4 * SAMPLE_RATE)
    silence = np.zeros(8 * SAMPLE_RATE, np.float32)
    assert len(windows_of(pcm)) == 4
    starts_in_speech = len(range(0, 400, STEP))
    assert starts_in_speech - 1 <= len(windows_of(np.concatenate([pcm, silence]))) <= starts_in_speech


class TestLaws(ScorerLaws):
    hop = HOP
    tolerance = 1e-6
    examples = 3

    @pytest.fixture
    def scorer(self) -> Scorer:
        return load(CPU)

    @pytest.fixture
    def requests(self, spoken: Speak) -> Sequence[SpeechRequest]:
        reference = (spoken(OTHER_TEXT), 24_000)
        return [
            SpeechRequest(TEXT, reference=reference),
            SpeechRequest("Oh."),
            SpeechRequest("Go.", reference=reference),
        ]

    @pytest.fixture
    def pcm(self, spoken: Speak) -> Tensor:
        return torch.from_numpy(spoken(TEXT).copy())

    @pytest.fixture
    def rate(self) -> int:
        return 24_000

    def test_law_9_work_does_not_grow(self, scorer: Scorer) -> None:
        assert scorer.rereads, "a head that hears everything again says so"
