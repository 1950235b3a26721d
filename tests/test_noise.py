"""Counter-based noise: published answers, and addresses that nothing else can move."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from search.noise import RowNoise, philox, row_key

# kat_vectors of the Random123 distribution, philox4x32 with 10 rounds: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(int(word, 16)) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: str, key: str, expected: str) -> None:
    assert [int(word) for word in philox(words(counter), words(key))] == [int(word) for word in words(expected)]


def test_row_keys_are_pinned() -> None:
    """A recording names its seed; the keys behind it may never change."""
    assert row_key(777, None, 0) == row_key(777, "", 0)
    assert RowNoise(777, ["a"], 2).uniform(3, 1, 2).flatten().tolist() == [
        0.27262061834335327,
        0.14132046699523926,
        0.676519513130188,
        0.9176320433616638,
    ]


@given(
    n=st.integers(1, 6),
    more=st.integers(0, 5),
    ids=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=3),
    start=st.integers(0, 1 << 40),
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    channels=st.integers(1, 3),
)
def test_a_draw_depends_on_its_address_only(
    n: int, more: int, ids: list[str | None], start: int, cuts: list[int], channels: int
) -> None:
    """Bug report B3: `multinomial` consumed its generator by tensor size, so one call of 20 was not 20 calls of 1."""
    frames = sum(cuts)
    for kind in ("uniform", "normal"):
        whole = getattr(RowNoise(7, ids, n + more), kind)(start, frames, channels).unflatten(0, (len(ids), n + more))
        for place, name in enumerate(ids):
            alone, at, parts = RowNoise(7, [name], n), start, []
            for length in cuts:
                parts.append(getattr(alone, kind)(at, length, channels))
                at += length
            assert torch.equal(torch.cat(parts, 1), whole[place, :n]), "N, batch mates or the partition moved a draw"
            assert torch.equal(whole[place, :, :, :1], getattr(RowNoise(7, [name], n + more), kind)(start, frames, 1))


def test_rows_may_start_at_frames_of_their_own() -> None:
    noise = RowNoise(1, ["x", "y"], 1)
    apart = noise.uniform(torch.tensor([4, 9]), 3, 2)
    assert torch.equal(apart[0], noise.uniform(4, 3, 2)[0])
    assert torch.equal(apart[1], noise.uniform(9, 3, 2)[1])


def test_every_part_of_the_key_matters() -> None:
    base = row_key(777, "a", 0)
    assert len({base, row_key(778, "a", 0), row_key(777, "b", 0), row_key(777, "a", 1), row_key(777, "a0", 0)}) == 5


def test_retries_with_a_new_seed_differ() -> None:
    """Bug report A10: retries reused one seed, so every retry was the same audio."""
    first, second = (RowNoise(seed, ["a"], 4).uniform(0, 50, 1) for seed in (1, 2))
    assert not bool((first == second).any(1).all())
    assert len(set(first[..., 0].flatten().tolist())) > 190


def test_uniforms_fill_the_unit_interval() -> None:
    """16,000 draws: the mean of such a sample lies within 0.012 of 0.5 with odds of a million to one."""
    draws = RowNoise(5, ["u"], 8).uniform(0, 1000, 2)
    assert draws.dtype == torch.float32
    assert 0.0 <= float(draws.min()) < 1e-3
    assert 1 - 1e-3 < float(draws.max()) < 1.0
    assert abs(float(draws.mean()) - 0.5) < 0.012
    assert abs(float(draws.var()) - 1 / 12) < 0.004


def test_normals_have_the_moments_of_a_normal() -> None:
    draws = RowNoise(5, ["u"], 8).normal(0, 1000, 2).double()
    assert bool(draws.isfinite().all())
    assert abs(float(draws.mean())) < 0.04
    assert abs(float(draws.var()) - 1) < 0.06
    assert abs(float((draws**4).mean()) - 3) < 0.5
