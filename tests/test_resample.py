"""The streaming resampler: the same samples however the audio is cut, and the samples that a library gives."""

from collections.abc import Sequence

import numpy as np
import pytest
import soxr
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from codec.builtin import BuiltinCodec
from scorers import load_scorer
from scorers.resample import Resampler
from search import SpeechRequest
from search.protocols import Scorer
from tests.contracts import ScorerLaws

RATES = [(48_000, 24_000), (44_100, 24_000), (16_000, 24_000), (8_000, 24_000), (24_000, 16_000)]


def whole(rate: int, wanted: int, pcm: Tensor) -> Tensor:
    resampler = Resampler(rate, wanted)
    out, lengths = resampler.hear(resampler.open(1), pcm[None], torch.tensor([len(pcm)]), torch.tensor([True]))
    assert out.shape == (1, int(lengths))
    return out[0]


@pytest.mark.parametrize(("rate", "wanted"), RATES)
def test_it_sounds_like_a_library(rate: int, wanted: int) -> None:
    time = torch.arange(rate // 2) / rate
    tones = sum(0.2 * torch.sin(2 * torch.pi * pitch * time) for pitch in (110.0, 440.0, 3000.0))
    assert isinstance(tones, Tensor)
    mine, theirs = whole(rate, wanted, tones).numpy(), soxr.resample(tones.numpy(), rate, wanted)
    assert len(mine) == len(theirs)
    edge = wanted // 50
    assert np.abs(mine - theirs)[edge:-edge].max() < 3e-4


def test_what_the_new_rate_cannot_hold_is_gone() -> None:
    tone = torch.sin(2 * torch.pi * 9500.0 * torch.arange(48_000, dtype=torch.float64) / 48_000).float()
    assert float(whole(48_000, 16_000, tone)[500:-500].abs().max()) < 1e-3


@given(data=st.data(), rates=st.sampled_from(RATES))
def test_how_it_is_cut_changes_no_sample(data: st.DataObject, rates: tuple[int, int]) -> None:
    """Bit for bit, rows of different lengths beside each other, whenever each of them ends."""
    resampler, rows = Resampler(*rates), 3
    ends = [data.draw(st.integers(0, 900)) for _ in range(rows)]
    pcm = torch.randn(rows, 900, generator=torch.Generator().manual_seed(1))
    state, pieces, start = resampler.open(rows), [torch.zeros(0)] * rows, 0
    while start < 900:
        size = data.draw(st.integers(1, 400))
        lengths = torch.tensor([max(0, min(size, end - start)) for end in ends])
        over = torch.tensor([end <= start + size for end in ends])
        part = pcm[:, start : start + size]
        part = torch.nn.functional.pad(part, (0, size - part.shape[1]))
        out, made = resampler.hear(state, part, lengths, over)
        pieces = [torch.cat([old, new[:count]]) for old, new, count in zip(pieces, out, made.tolist(), strict=True)]
        start += size
    for row, end in enumerate(ends):
        assert torch.equal(pieces[row], whole(*rates, pcm[row, :end]))


class TestListenerAtAnotherRate(ScorerLaws):
    """The built-in listener on audio of a codec that speaks at 48 kHz: the resampler's state forks with the rest."""

    hop = 3840
    tolerance = 1e-3
    examples = 3

    @pytest.fixture
    def scorer(self) -> Scorer:
        return load_scorer("listener")

    @pytest.fixture
    def requests(self) -> Sequence[SpeechRequest]:
        texts = ("The tall man walks to the old house.", "Oh.", "Come back soon.")
        return [SpeechRequest(text) for text in texts]

    @pytest.fixture
    def pcm(self) -> Tensor:
        codec = BuiltinCodec.load()
        frames = torch.stack([torch.randint(0, size, (40,)) for size in codec.book_sizes], 1)
        return torch.from_numpy(soxr.resample(codec.decode(frames).numpy(), codec.sample_rate, 48_000))

    @pytest.fixture
    def rate(self) -> int:
        return 48_000
