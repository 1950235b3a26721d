"""From logits and a uniform to a code."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from search import Sampling
from search.sampling import draw, draw_code, filtered, penalise

PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}


def logits_of(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


def swept(logits: Tensor, steps: int = 1000, **settings: float) -> list[int]:
    """Codes for uniforms spread evenly over [0, 1)."""
    uniform = (torch.arange(steps) + 0.5) / steps
    return draw(logits.expand(steps, -1), uniform, **{**PLAIN, **settings}).tolist()  # type: ignore[arg-type]


def test_frequencies_are_the_probabilities() -> None:
    codes = swept(logits_of(0.1, 0.6, 0.3))
    assert [codes.count(code) for code in range(3)] == [100, 600, 300]


def test_likelier_codes_come_first_and_equals_by_id() -> None:
    """Bug report B7: which of two equal logits won moved with the sort; the rule is: falling probability, rising id."""
    codes = swept(logits_of(0.2, 0.3, 0.2, 0.3), steps=10)
    assert codes == [1, 1, 1, 3, 3, 3, 0, 0, 2, 2]


def test_temperature_zero_is_the_likeliest_code_and_the_lowest_of_equals() -> None:
    assert draw(torch.tensor([0.0, 2.0, 2.0]), torch.tensor(0.99), temperature=0.0, top_k=0, top_p=1.0) == 1


def test_temperature_sharpens() -> None:
    assert swept(logits_of(0.75, 0.25), temperature=0.5).count(0) == 900


def test_top_k_keeps_k_and_ties_with_the_last() -> None:
    assert set(swept(logits_of(0.4, 0.3, 0.2, 0.1), top_k=2)) == {0, 1}
    assert set(swept(logits_of(0.4, 0.2, 0.2, 0.2), top_k=2)) == {0, 1, 2, 3}
    assert set(swept(logits_of(0.4, 0.3, 0.2, 0.1), top_k=9)) == {0, 1, 2, 3}


def test_top_p_keeps_the_code_that_crosses_p() -> None:
    assert set(swept(logits_of(0.5, 0.3, 0.2), top_p=0.6)) == {0, 1}
    assert set(swept(logits_of(0.5, 0.3, 0.2), top_p=0.4)) == {0}
    assert set(swept(logits_of(0.5, 0.3, 0.2), top_p=1e-6)) == {0}


def test_top_p_counts_what_top_k_left() -> None:
    assert set(swept(logits_of(0.4, 0.3, 0.2, 0.1), top_k=2, top_p=0.5)) == {0}
    probabilities, ids = filtered(logits_of(0.1, 0.4, 0.2, 0.3), temperature=1.0, top_k=2, top_p=1.0)
    assert ids[:2].tolist() == [1, 3]
    assert probabilities.tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])


@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-24])
def test_extreme_uniforms_give_codes_with_probability(uniform: float) -> None:
    logits = torch.full((4096,), -30.0)
    logits[7] = 0.0
    logits[4000:] = -torch.inf
    code = draw(logits, torch.tensor(uniform), **PLAIN)  # type: ignore[arg-type]
    assert bool(logits[code].isfinite())


@given(
    rows=st.integers(1, 5),
    size=st.integers(1, 40),
    top_k=st.integers(0, 45),
    top_p=st.floats(0.01, 1.0),
    temperature=st.floats(0.1, 3.0),
    seed=st.integers(0, 99),
)
def test_a_row_is_drawn_alike_in_any_company(
    rows: int, size: int, top_k: int, top_p: float, temperature: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, generator=generator).mul(4).round() / 2  # many ties
    uniform = torch.rand(rows, generator=generator)
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    together = draw(logits, uniform, **settings)  # type: ignore[arg-type]
    apart = [int(draw(logits[row], uniform[row], **settings)) for row in range(rows)]  # type: ignore[arg-type]
    assert together.tolist() == apart
    kept = filtered(logits, **settings)[0]  # type: ignore[arg-type]
    assert kept.sum(-1).tolist() == pytest.approx([1.0] * rows, abs=1e-5)


def test_draw_code_reads_the_audio_settings() -> None:
    logits = logits_of(0.4, 0.3, 0.2, 0.1)
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.8, text_temperature=0.0)
    for uniform in torch.linspace(0, 0.999, 20):
        assert draw_code(logits, uniform, sampling) == draw(logits, uniform, temperature=0.7, top_k=3, top_p=0.8)


def test_repetition_penalty_lowers_seen_codes_of_either_sign() -> None:
    seen = torch.tensor([True, True, False, False])
    assert penalise(torch.tensor([2.0, -2.0, 2.0, -2.0]), seen, 2.0).tolist() == [1.0, -4.0, 2.0, -2.0]


def test_no_penalty_touches_nothing() -> None:
    logits = torch.randn(3, 5)
    assert penalise(logits, torch.ones(3, 5, dtype=torch.bool), 1.0) is logits
