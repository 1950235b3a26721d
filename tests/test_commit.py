"""The commit rule: only real frames, only where all kept rows agree, and never more lag than allowed."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from search.commit import agreed_frames, drop_late


def codes(*rows: str) -> Tensor:
    """One book; a letter a frame."""
    width = max(len(row) for row in rows)
    return torch.tensor([[ord(letter) for letter in row.ljust(width, "~")] for row in rows])[..., None]


def test_padding_is_never_committed() -> None:
    """Bug report A6: a row that ended at frame 6 of 10 had its 4 pad frames counted as committed audio."""
    frames = torch.full((2, 10, 2), 1024)
    frames[:, :6] = 3
    assert agreed_frames(frames, [6, 6], [0]) == 6
    assert agreed_frames(frames, [6, 6], [0, 1]) == 6
    assert agreed_frames(frames, [6, 4], [0, 1]) == 4


def test_the_longest_common_prefix() -> None:
    frames = codes("abcd", "abcx", "abyd")
    assert agreed_frames(frames, [4, 4, 4], [0, 1]) == 3
    assert agreed_frames(frames, [4, 4, 4], [0, 1, 2]) == 2
    assert agreed_frames(frames, [4, 4, 4], [2]) == 4
    assert agreed_frames(frames, [4, 4, 0], [0, 2]) == 0


def test_a_frame_agrees_only_in_all_its_books() -> None:
    frames = torch.zeros(2, 3, 4, dtype=torch.int64)
    frames[1, 1, 3] = 1
    assert agreed_frames(frames, [3, 3], [0, 1]) == 1


def test_latents_agree_bit_for_bit() -> None:
    frames = torch.zeros(2, 3, 4)
    assert agreed_frames(frames, [3, 3], [0, 1]) == 3
    frames[1, 2, 0] = 1e-30
    assert agreed_frames(frames, [3, 3], [0, 1]) == 2


def test_rows_that_hold_up_the_best_one_are_dropped() -> None:
    frames = codes("abcdefgh", "abcdefgx", "abxxxxxx")
    lengths = [8, 8, 8]
    assert drop_late(frames, lengths, [0, 2, 1], None) == [0, 2, 1]
    assert drop_late(frames, lengths, [0, 2, 1], 6) == [0, 2, 1]
    assert drop_late(frames, lengths, [0, 2, 1], 5) == [0, 1]
    assert drop_late(frames, lengths, [0, 1, 2], 0) == [0]


def test_a_finished_best_row_does_not_let_the_others_lag() -> None:
    """The best row ended early: the bound counts the frames of the rows that go on, not its own few."""
    frames = codes("abc", "abxdefgh")
    assert drop_late(frames, [3, 8], [0, 1], 5) == [0]
    assert drop_late(frames, [3, 8], [0, 1], 6) == [0, 1]


@given(
    st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(0, 6),
    st.randoms(use_true_random=False),
)
def test_the_lag_bound_holds_for_whatever_is_kept(rows: list[str], max_lag: int, random: object) -> None:
    frames, lengths = codes(*rows), [len(row) for row in rows]
    kept = list(range(len(rows)))
    random.shuffle(kept)  # type: ignore[attr-defined]
    left = drop_late(frames, lengths, kept, max_lag)
    assert left[0] == kept[0], "the best row stays"
    assert left == [row for row in kept if row in left], "the order of the rows stays"
    assert max(lengths[row] for row in left) - agreed_frames(frames, lengths, left) <= max_lag
    for row in set(kept) - set(left):
        trial = [*left, row]
        assert max(lengths[r] for r in trial) - agreed_frames(frames, lengths, trial) > max_lag, f"{row} could stay"
