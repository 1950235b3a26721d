"""The arithmetic of rewards: monotone in word errors whatever the rest is, and deaf to terms that are not there."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scorers.reward import Gate, Normalisation, WeightedTerm, compose, normalised

NORMALISATIONS: tuple[Normalisation, ...] = ("none", "minmax", "zscore", "reference")
KINDS = st.sampled_from(NORMALISATIONS)
NUMBERS = st.floats(-4, 4, width=32)
ERRORS = st.floats(0, 3, width=32)
WEIGHTS = st.floats(0.125, 4, width=32)


def sets(values: st.SearchStrategy[float], n: int) -> st.SearchStrategy[Tensor]:
    return st.lists(values, min_size=n, max_size=n).map(lambda row: torch.tensor([row]))


def weighted(data: st.DataObject, sign: float) -> WeightedTerm:
    return WeightedTerm(sign, data.draw(WEIGHTS), data.draw(KINDS), data.draw(NUMBERS), data.draw(WEIGHTS))


@given(data=st.data(), n=st.integers(1, 6))
def test_more_word_errors_never_raise_a_reward(data: st.DataObject, n: int) -> None:
    terms = {"style": weighted(data, 1.0), "noise": weighted(data, -1.0)}
    if data.draw(st.booleans()):
        terms["wer"] = weighted(data, -1.0)
    full = data.draw(st.floats(0, 1, width=32))
    gates = {"wer": Gate(-1.0, full, full + data.draw(st.floats(0, 2, width=32)))}
    raw = {
        "style": data.draw(sets(NUMBERS, n)),
        "noise": data.draw(sets(NUMBERS, n)),
        "wer": data.draw(sets(ERRORS, n)),
    }
    row, more = data.draw(st.integers(0, n - 1)), data.draw(ERRORS)
    worse = raw | {"wer": raw["wer"].clone()}
    worse["wer"][0, row] += more
    before, after = compose(raw, terms, gates)[0][0, row], compose(worse, terms, gates)[0][0, row]
    assert float(after) <= float(before) + 1e-5 * max(1.0, abs(float(before)))


def test_a_bad_candidate_gets_no_thanks_for_its_errors() -> None:
    """With a core below zero the usual product, or division by 1 + WER, would pay for every wrong word."""
    raw = {"core": torch.tensor([[-2.0, -2.0, -2.0]]), "wer": torch.tensor([[0.0, 0.5, 1.0]])}
    reward, _ = compose(raw, {"core": WeightedTerm(1.0, 1.0)}, {"wer": Gate(-1.0, 0.0, 1.0)})
    assert reward.tolist() == [[-2.0, -3.0, -4.0]]


@given(data=st.data(), n=st.integers(1, 6), kind=KINDS)
def test_what_is_absent_contributes_nothing(data: st.DataObject, n: int, kind: Normalisation) -> None:
    """Bit for bit, as a term and as a gate, whatever its normalisation would have made of a constant."""
    terms, gates = {"style": weighted(data, 1.0)}, {"wer": Gate(-1.0, 0.0, 1.0)}
    raw = {"style": data.draw(sets(NUMBERS, n)), "wer": data.draw(sets(ERRORS, n))}
    gone = {"burst": torch.full((1, n), math.nan)}
    without, _ = compose(raw, terms, gates)
    burst, shut = WeightedTerm(1.0, 2.0, kind, 0.5, 2.0), Gate(1.0, 1.0, 0.0)
    beside, _ = compose(raw | gone, terms | {"burst": burst}, gates | {"burst": shut})
    assert torch.equal(without, beside)


def test_a_constant_in_the_place_of_an_absent_term_would_change_the_winner() -> None:
    raw = {
        "g": torch.tensor([[1.0, 0.94]]),
        "wer": torch.tensor([[0.05, 0.0]]),
        "burst": torch.tensor([[math.nan] * 2]),
    }
    terms, gates = {"g": WeightedTerm(1.0, 1.0)}, {"wer": Gate(-1.0, 0.0, 1.0)}
    burst = {"burst": WeightedTerm(1.0, 1.0, "minmax")}
    assert int(compose(raw, terms | burst, gates)[0].argmax()) == 0
    constant = raw | {"burst": torch.ones(1, 2)}
    assert int(compose(constant, terms | {"burst": WeightedTerm(1.0, 1.0)}, gates)[0].argmax()) == 1


@pytest.mark.parametrize("gap", [math.nan, math.inf, -math.inf])
def test_a_candidate_that_lacks_what_others_have_is_not_judged(gap: float) -> None:
    raw = {"wer": torch.tensor([[0.5, gap, 0.9]])}
    reward, shares = compose(raw, {"wer": WeightedTerm(-1.0, 1.0)}, {})
    assert reward[0, 0] == -0.5
    assert math.isnan(reward[0, 1])
    assert math.isnan(shares["wer"][0, 1])
    by_range, _ = compose(raw, {"wer": WeightedTerm(-1.0, 1.0, "minmax")}, {})
    assert by_range[0, [0, 2]].tolist() == [1.0, 0.0]


def test_no_term_at_all_is_no_reward() -> None:
    reward, _ = compose({"wer": torch.full((2, 3), math.nan)}, {"wer": WeightedTerm(-1.0, 1.0)}, {})
    assert bool(reward.isnan().all())


def test_sets_are_judged_apart() -> None:
    raw = {"style": torch.tensor([[0.0, 1.0], [5.0, 7.0], [3.0, 3.0]])}
    reward, _ = compose(raw, {"style": WeightedTerm(1.0, 1.0, "minmax")}, {})
    assert reward.tolist() == [[0.0, 1.0], [0.0, 1.0], [0.5, 0.5]]


@given(values=sets(NUMBERS, 5), kind=KINDS)
def test_scales(values: Tensor, kind: Normalisation) -> None:
    """Order survives every scale, and each has the range that its name promises."""
    scaled = normalised(values.double(), WeightedTerm(1.0, 1.0, kind, 1.0, 2.0))
    assert bool((scaled[0, values[0].argsort()].diff() >= 0).all())
    if kind == "minmax":
        assert float(scaled.min()) >= 0.0
        assert float(scaled.max()) <= 1.0
    if kind == "zscore":
        assert abs(float(scaled.mean())) < 1e-6
    if kind == "reference":
        torch.testing.assert_close(scaled, (values.double() - 1.0) / 2.0)


@pytest.mark.parametrize(
    ("sign", "full", "zero", "value", "wanted"),
    [
        (-1.0, 0.0, 1.0, 0.25, 0.75),
        (-1.0, 0.0, 1.0, 1.5, 0.0),
        (-1.0, 0.1, 0.1, 0.1, 1.0),
        (-1.0, 0.1, 0.1, 0.11, 0.0),
        (1.0, 0.8, 0.6, 0.7, 0.5),
        (1.0, 0.8, 0.8, 0.79, 0.0),
    ],
)
def test_gates(sign: float, full: float, zero: float, value: float, wanted: float) -> None:
    raw = {"core": torch.ones(1, 1), "term": torch.tensor([[value]], dtype=torch.float64)}
    reward, shares = compose(raw, {"core": WeightedTerm(1.0, 1.0)}, {"term": Gate(sign, full, zero)})
    assert float(reward) == pytest.approx(wanted)
    assert float(shares["gate term"]) == pytest.approx(wanted)
