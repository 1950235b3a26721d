"""DNSMOS on real speech and on what was done to it: the right answer of each is known."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorers.heads import Clip
from scorers.naturalness import SAMPLE_RATE, WINDOW, Dnsmos, all_windows, last_window, load
from scorers.rereader import Rereader
from search import SpeechRequest
from search.protocols import Scorer
from tests.contracts import ScorerLaws

pytest.importorskip("speechmos", reason="pip install chunksearch[naturalness]")
pytest.importorskip("librosa", reason="pip install chunksearch[naturalness]")

Sound = NDArray[np.float32]
Speak = Callable[[str], Sound]
CPU = torch.device("cpu")
TEXT = "The tall man walks to the old house with a dog."
REFERENCE = {"dnsmos": "ovrl_mos", "dnsmos_sig": "sig_mos", "dnsmos_bak": "bak_mos", "dnsmos_p808": "p808_mos"}


@pytest.fixture(scope="module")
def head() -> Any:
    return load(CPU).head


@pytest.fixture(scope="module")
def speech(spoken: Speak) -> Sound:
    return soxr.resample(spoken(TEXT), 24_000, SAMPLE_RATE).astype(np.float32)


def clip(pcm: Sound) -> Clip:
    return Clip(pcm.astype(np.float32), 0, True, None)


def noisy(pcm: Sound, decibels: float) -> Sound:
    noise = np.random.default_rng(0).standard_normal(len(pcm))
    return pcm + noise * np.sqrt(np.mean(pcm**2)) * 10 ** (-decibels / 20)


class TestAgainstThePackage:
    """`speechmos.dnsmos.run` is what published figures come from."""

    @pytest.mark.parametrize("seconds", [2.3, 3.0, 11.5])
    def test_all_windows_are_its_figures(self, speech: Sound, seconds: float) -> None:
        from speechmos import dnsmos

        pcm = np.resize(speech, int(seconds * SAMPLE_RATE))
        theirs = dnsmos.run(pcm, SAMPLE_RATE)
        mine = load(CPU, windows="all").head.judge([clip(pcm)])[0].terms
        for name, key in REFERENCE.items():
            assert mine[name] == pytest.approx(float(theirs[key]), abs=1e-6), name

    def test_the_last_window_is_theirs_where_they_have_one(self, head: Any, speech: Sound) -> None:
        from speechmos import dnsmos

        pcm = speech[: int(2.4 * SAMPLE_RATE)]
        theirs = dnsmos.run(pcm, SAMPLE_RATE)
        mine = head.judge([clip(pcm)])[0].terms
        for name, key in REFERENCE.items():
            assert mine[name] == pytest.approx(float(theirs[key]), abs=1e-6), name


class TestDamage:
    def test_more_noise_is_worse(self, head: Any, speech: Sound) -> None:
        clips = [clip(speech)] + [clip(noisy(speech, decibels)) for decibels in (20, 10, 0)]
        found = [judgement.terms for judgement in head.judge(clips)]
        for name in ("dnsmos", "dnsmos_bak"):
            values = [terms[name] for terms in found]
            assert all(better > worse + 0.2 for better, worse in itertools.pairwise(values)), (name, values)

    def test_noise_is_the_background_and_no_fault_of_the_signal(self, head: Any, speech: Sound) -> None:
        clean, noise = (judgement.terms for judgement in head.judge([clip(speech), clip(noisy(speech, 20))]))
        assert clean["dnsmos_bak"] - noise["dnsmos_bak"] > 1.0
        assert abs(clean["dnsmos_sig"] - noise["dnsmos_sig"]) < 0.3

    def test_overdriven_speech_is_worse(self, head: Any, speech: Sound) -> None:
        clean, overdriven = (judgement.terms for judgement in head.judge([clip(speech), clip(10 * speech)]))
        assert clean["dnsmos"] > overdriven["dnsmos"] + 0.1
        assert clean["dnsmos_p808"] > overdriven["dnsmos_p808"] + 0.1

    def test_samples_beyond_one_are_heard_clipped(self, head: Any, speech: Sound) -> None:
        loud, clipped = head.judge([clip(10 * speech), clip(np.clip(10 * speech, -1, 1))])
        assert loud.terms == clipped.terms

    def test_the_last_seconds_are_heard(self, head: Any, speech: Sound) -> None:
        good = np.resize(speech, 12 * SAMPLE_RATE)
        bad = good.copy()
        bad[-2 * SAMPLE_RATE :] = noisy(good[-2 * SAMPLE_RATE :], 0)
        start = good.copy()
        start[:SAMPLE_RATE] = noisy(good[:SAMPLE_RATE], 0)
        whole, end_broken, start_broken = (
            judgement.terms for judgement in head.judge([clip(good), clip(bad), clip(start)])
        )
        assert whole["dnsmos"] > end_broken["dnsmos"] + 0.2
        assert whole == start_broken


class TestWhatCannotBeJudged:
    @pytest.mark.parametrize(
        ("pcm", "reason"),
        [
            (np.zeros(SAMPLE_RATE), "silent"),
            (np.full(SAMPLE_RATE, 9e-4), "silent"),
            (np.ones(100), "too short"),
            (np.ones(1), "too short"),
        ],
    )
    def test_it_says_why(self, head: Any, pcm: Sound, reason: str) -> None:
        (judgement,) = head.judge([clip(pcm)])
        assert all(np.isnan(value) for value in judgement.terms.values())
        assert list(judgement.terms) == list(REFERENCE)
        assert reason in judgement.note["not_judged"]

    def test_its_mates_are_judged(self, head: Any, speech: Sound) -> None:
        silent, heard = head.judge([clip(np.zeros(SAMPLE_RATE)), clip(speech)])
        assert "not_judged" in silent.note
        assert heard == head.judge([clip(speech)])[0]


def test_batch_mates_change_nothing(head: Any, speech: Sound) -> None:
    one, other = clip(speech), clip(noisy(speech[: 2 * SAMPLE_RATE], 10))
    alone = head.judge([one])[0], head.judge([other])[0]
    assert tuple(head.judge([one, other])) == alone
    assert tuple(head.judge([other, one])) == alone[::-1]


class TestWindows:
    def test_a_short_clip_is_repeated(self) -> None:
        pcm = np.arange(50_000, dtype=np.float32)
        np.testing.assert_array_equal(last_window(pcm)[0], np.concatenate([pcm, pcm, pcm])[:WINDOW])

    def test_a_long_clip_is_heard_at_its_end(self) -> None:
        pcm = np.arange(200_000, dtype=np.float32)
        np.testing.assert_array_equal(last_window(pcm)[0], pcm[-WINDOW:])

    @pytest.mark.parametrize(("seconds", "count"), [(0.5, 7), (2.3, 1), (3.0, 3), (9.5, 1), (17.5, 7), (40.0, 14)])
    def test_counts_as_the_package_has_them(self, seconds: float, count: int) -> None:
        assert all_windows(np.zeros(int(seconds * SAMPLE_RATE), np.float32)).shape == (count, WINDOW)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"windows": "first"}, "windows: 'first' is not known; allowed are last, all"),
            ({"windows": ["last"]}, r"windows: \['last'\] is not known"),
            ({"threads": 0}, "threads: 0 is not a whole number of at least 1"),
            ({"threads": True}, "threads: True"),
            ({"threads": 1.5}, "threads: 1.5"),
        ],
    )
    def test_errors_name_option_and_value(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            load(CPU, **options)

    @pytest.mark.parametrize(("options", "threads"), [({}, 1), ({"threads": 2}, 2)])
    def test_threads_are_capped(self, options: dict[str, Any], threads: int) -> None:
        head: Any = load(CPU, **options).head
        for network in (head._p835, head._p808):
            assert network.get_session_options().intra_op_num_threads == threads

    def test_it_is_a_scorer_of_its_first_term(self, spoken: Speak) -> None:
        pcm = torch.from_numpy(spoken(TEXT).copy())[None]
        stream = load(CPU).open([SpeechRequest(TEXT)], 1, 24_000, 1920)
        scores = stream.score(pcm, torch.tensor([pcm.shape[1]]), torch.tensor([True]))
        assert 2.5 < float(scores.reward) < 3.5
        assert float(scores.reward) == float(scores.heads["dnsmos"])


class Ruler:
    """A network's stand-in that is as fast as the laws need: weighs what it hears."""

    def __init__(self, outputs: int) -> None:
        self._outputs = outputs

    def run(self, _: None, heard: dict[str, Sound]) -> list[Sound]:
        pcm = heard["input_1"].reshape(1, -1)
        weights = np.linspace(0.5, 1.5, pcm.shape[1] * self._outputs, dtype=np.float32).reshape(-1, self._outputs)
        return [np.abs(pcm) @ weights / pcm.shape[1]]


class TestLaws(ScorerLaws):
    """With stand-ins for the networks: what these hear is what the laws are about."""

    hop = 1920
    examples = 4

    @pytest.fixture
    def scorer(self) -> Scorer:
        network: Any = Ruler(3)
        other: Any = Ruler(1)
        return Rereader(Dnsmos(network, other, last_window))

    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        return [SpeechRequest(TEXT), SpeechRequest("Oh."), SpeechRequest("Come back soon.")]

    @pytest.fixture
    def pcm(self, spoken: Speak) -> Tensor:
        return torch.from_numpy(spoken(TEXT).copy())

    @pytest.fixture
    def rate(self) -> int:
        return 24_000

    def test_law_9_work_does_not_grow(self, scorer: Scorer) -> None:
        assert scorer.rereads, "a head that hears everything again says so"
