"""The listener as a stream, with weights drawn by chance: what it computes means nothing, but must never change."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from scorers import load_scorer
from scorers.builtin.features import SAMPLE_RATE
from scorers.builtin.network import ListenerConfig, Recogniser
from scorers.builtin.scorer import Listener, ListenerStream
from scorers.builtin.weights import load, save
from search.protocols import Scores
from search.request import SpeechRequest

HOP = 1920
TEXTS = {
    "short": [("hi", (50, 25))],
    "long": [("hello", (50, 83, 54, 31, 16)), ("world", (65, 87, 123, 54, 46)), ("again", (83, 92, 86, 56, 4))] * 6,
    "none": [("...", (4,))],
}


def listener() -> Listener:
    torch.manual_seed(3)
    network = Recogniser(ListenerConfig(width=64, inner=64, dilations=(1, 2, 4)))
    network.mean.fill_(-4.0)
    with torch.no_grad():
        network.head.weight.mul_(6.0)
    return Listener(network, TEXTS.__getitem__)


def noise(rows: int, samples: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    loud = torch.rand(rows, samples // 240 + 1, generator=generator).repeat_interleave(240, 1)[:, :samples]
    return torch.randn(rows, samples, generator=generator) * loud * 0.2


def opened(texts: list[str], n: int) -> ListenerStream:
    return listener().open([SpeechRequest(text=text) for text in texts], n, SAMPLE_RATE, HOP)


def hear(stream: ListenerStream, pcm: Tensor, finished: bool = False) -> Scores:
    rows, samples = pcm.shape
    return stream.score(pcm, torch.full((rows,), samples), torch.full((rows,), finished))


def assert_same(one: Scores, other: Scores, rows: slice = slice(None)) -> None:
    """Bitwise."""
    assert torch.equal(one.reward[rows], other.reward[rows])
    assert all(torch.equal(one.heads[name][rows], other.heads[name][rows]) for name in one.heads)
    assert one.notes[rows] == other.notes[rows]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 9000), max_size=6), st.booleans(), st.integers(0, 99))
def test_how_the_audio_was_cut_changes_nothing(cuts: list[int], finished: bool, seed: int) -> None:
    pcm = noise(2, 30_000, seed)
    whole = hear(opened(["long"], 2), pcm, finished)
    stream, at = opened(["long"], 2), 0
    for size in cuts:
        hear(stream, pcm[:, at : at + size])
        at = min(at + size, pcm.shape[1])
    parts = hear(stream, pcm[:, at:], finished)
    torch.testing.assert_close(parts.reward, whole.reward, atol=1e-4, rtol=1e-4)
    assert parts.notes == whole.notes


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=4), st.integers(0, 99))
def test_a_forked_row_is_one_that_heard_its_parents_audio(forks: list[list[int]], seed: int) -> None:
    stream, history = opened(["long"], 4), torch.zeros(4, 0)
    for step, parents in enumerate(forks):
        pcm = noise(4, 5 * HOP, seed + step)
        hear(stream, pcm)
        history = torch.cat([history, pcm], 1)[parents]
        stream.fork(torch.tensor([parents]))
        stream.commit(torch.tensor([2]))
    last = noise(4, 5 * HOP, seed + 50)
    forked, fresh = hear(stream, last), opened(["long"], 4)
    for start in range(0, history.shape[1], 5 * HOP):
        hear(fresh, history[:, start : start + 5 * HOP])
    assert_same(forked, hear(fresh, last))


def test_rows_do_not_depend_on_batch_mates_or_their_number() -> None:
    pcm = noise(8, 12 * HOP)
    together = opened(["long", "short"], 4)
    first, second = hear(together, pcm[:, : 7 * HOP]), hear(together, pcm[:, 7 * HOP :], finished=True)
    for rows in (1, 2, 3):
        alone = opened(["long"], rows)
        assert torch.equal(hear(alone, pcm[:rows, : 7 * HOP]).reward, first.reward[:rows])
        assert torch.equal(hear(alone, pcm[:rows, 7 * HOP :], finished=True).reward, second.reward[:rows])


def test_the_end_of_a_row_is_heard_without_spoiling_what_is_kept() -> None:
    """A row that has finished is judged over silence that nobody played; a second look must find it as it was."""
    pcm = noise(2, 10 * HOP)
    stream = opened(["short"], 2)
    lengths, nothing = torch.tensor([10 * HOP, 4 * HOP]), torch.zeros(2, dtype=torch.int64)
    first = stream.score(pcm, lengths, torch.tensor([True, True]))
    again = stream.score(torch.zeros(2, 0), nothing, torch.tensor([True, True]))
    torch.testing.assert_close(again.reward, first.reward)
    assert again.notes == first.notes
    mixed = stream.score(torch.zeros(2, 0), nothing, torch.tensor([True, False]))
    torch.testing.assert_close(mixed.reward[0], first.reward[0])


def test_padding_beyond_a_rows_length_is_not_heard() -> None:
    pcm = noise(2, 6 * HOP)
    lengths = torch.tensor([6 * HOP, 3 * HOP])
    over = torch.tensor([False, False])
    clean = opened(["long"], 2).score(pcm, lengths, over)
    pcm[1, 3 * HOP :] = torch.nan
    assert_same(clean, opened(["long"], 2).score(pcm, lengths, over))


def test_what_cannot_be_judged_is_nan_with_a_reason() -> None:
    stream = opened(["long", "none"], 2)
    pcm = noise(4, 2 * HOP)
    pcm[0, 100] = torch.inf
    scores = stream.score(pcm, torch.tensor([2 * HOP, 0, 2 * HOP, 2 * HOP]), torch.zeros(4, dtype=torch.bool))
    assert all(values.isnan().all() for values in (scores.reward, *scores.heads.values()))
    reasons = [note["not_judged"] for note in scores.notes]
    assert reasons == ["audio is not finite", "nothing heard yet", "text without sounds", "text without sounds"]
    later = hear(stream, noise(4, 2 * HOP, 1))
    for values in (later.reward, *later.heads.values()):
        assert values.isnan().tolist() == [True, False, True, True]


def test_unknown_state_is_refused() -> None:
    stream = opened(["short"], 2)
    stream._open_state.memory.append("a note")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="memory"):
        stream.fork(torch.tensor([[1, 1]]))


def test_a_closed_stream_says_so() -> None:
    stream = opened(["short"], 1)
    stream.close()
    stream.close()
    with pytest.raises(RuntimeError, match="closed"):
        hear(stream, noise(1, HOP))


def test_an_unknown_scorer_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'listner'.*builtin.*fake, listener"):
        load_scorer("listner")


def test_weights_survive_storage_and_faults_are_named(tmp_path: Path) -> None:
    network = listener().network
    path = tmp_path / "listener.safetensors"
    save(network, path, {"seed": "3"})
    again = load(path)
    assert again.config == network.config
    torch.testing.assert_close(again.head.weight, network.head.weight, atol=1e-3, rtol=1e-3)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere.safetensors")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"listener\.safetensors"):
        load(path)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("{", "'config' in its metadata is not JSON"),
        ("[]", "'width' .* is None"),
        ('{"width": 8, "dilations": [1]}', "'inner' .* is None"),
        ('{"width": 8, "inner": 8, "dilations": 1}', "'dilations' .* is 1"),
        ('{"width": 8, "inner": 8, "dilations": [1]}', "tensor 'more' is not known"),
    ],
)
def test_faults_of_the_metadata_name_the_file(tmp_path: Path, sizes: str, message: str) -> None:
    path = tmp_path / "listener.safetensors"
    save_file({"more": torch.zeros(1)}, path, {"config": sizes})
    with pytest.raises(ValueError, match=rf"listener\.safetensors: .*{message}"):
        load(path)
