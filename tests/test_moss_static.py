"""The frame step on fixed buffers says what the plain stream says, recorded or not, whatever happens between chunks."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from codec.fake import FakeCodec
from engine.moss.engine import MossEngine
from engine.moss.frames import FrameNetwork
from engine.moss.graphs import Unrecorded
from engine.moss.network import MossNetwork
from engine.moss.static import BLOCK, TAIL_ROOM, FramePlace, Plan
from engine.moss.static_stream import FramePlaces
from engine.moss.stream import MossStream
from experiments.bench.voices import SIZES
from scorers.fake import FakeScorer
from search import ChunkSearch, SpeechRequest
from search.config import Sampling
from tests.contracts import Laws, Subject
from tests.static_cases import MOSS, NETWORKS, Case, Counted, Traced, live
from tests.tiny import tiny_moss_config, tiny_moss_network

SAMPLING = Sampling(temperature=1.0, top_k=8, top_p=0.9)
ENDLESS = replace(SAMPLING, text_temperature=0.0)


def same(plain: MossStream, static: MossStream, frames: int) -> None:
    """One chunk of both."""
    mine, theirs = plain.advance(frames), static.advance(frames)
    assert torch.equal(mine.frames, theirs.frames)
    assert torch.equal(mine.lengths, theirs.lengths)
    assert torch.equal(mine.finished, theirs.finished)
    assert plain.state.frame == static.state.frame
    for name in ("pending", "committed"):
        assert getattr(plain.state.cache, name) == getattr(static.state.cache, name)
    going = live(plain)
    torch.testing.assert_close(static.state.hidden[going], plain.state.hidden[going], rtol=1e-4, atol=1e-4)


def between(data: st.DataObject, streams: list[MossStream], batch: int, n: int) -> None:
    """Some fork and some commit, the same in all streams."""
    parents = torch.tensor([data.draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)) for _ in range(batch)])
    pending = streams[0].state.cache.pending[:batch]
    frames = torch.tensor([data.draw(st.integers(0, most)) for most in pending])
    for stream in streams:
        stream.fork(parents)
        stream.commit(frames)


@pytest.mark.parametrize("name", sorted(NETWORKS))
@settings(max_examples=12)
@given(
    data=st.data(),
    which=st.sampled_from([(0,), (1,), (2, 0), (0, 1, 2)]),
    n=st.integers(1, 5),
    guidance=st.sampled_from([1.0, 2.5]),
    penalty=st.sampled_from([1.0, 1.5]),
    ends=st.booleans(),
    temperature=st.sampled_from([0.0, 1.0]),
    top_k=st.sampled_from([0, 8]),
    min_seconds=st.sampled_from([0.0, 0.5]),
)
def test_frames_are_those_of_the_plain_stream(
    name: str,
    data: st.DataObject,
    which: tuple[int, ...],
    n: int,
    guidance: float,
    penalty: float,
    ends: bool,
    temperature: float,
    top_k: int,
    min_seconds: float,
) -> None:
    sampling = Sampling(
        temperature=temperature,
        top_k=top_k,
        repetition_penalty=penalty,
        text_temperature=1.0 if ends else 0.0,
        min_seconds=min_seconds,
        seed=data.draw(st.integers(0, 9)),
    )
    case = Case(NETWORKS[name], which, n, sampling, guidance)
    plain, static = case.plain(), case.static(Unrecorded())
    for frames in data.draw(st.lists(st.sampled_from([1, 10, 20, BLOCK + 1]), min_size=1, max_size=3)):
        same(plain, static, frames)
        between(data, [plain, static], len(which), n)
    same(plain, static, 3)


@pytest.mark.parametrize(("name", "guidance"), [("moss", 2.0), ("nano", 1.0)])
def test_a_step_that_was_recorded_once_says_the_same_when_replayed(name: str, guidance: float) -> None:
    """Rows end, requests end, rows fork, frames are committed and the seed is another: one recording serves it all."""
    recorder = Traced()
    places = FramePlaces(NETWORKS[name], recorder)
    for seed in (1, 2):
        sampling = replace(SAMPLING, repetition_penalty=1.3, seed=seed, min_seconds=seed / 10)
        case = Case(NETWORKS[name], (0, 1), 3, sampling, guidance)
        plain, static = case.plain(), case.on(places)
        for frames, parents, commit in ((10, [[1, 1, 0], [2, 2, 2]], [0, 4]), (7, [[2, 0, 0], [1, 1, 1]], [9, 0])):
            same(plain, static, frames)
            pending = plain.state.cache.pending
            for stream in (plain, static):
                stream.fork(torch.tensor(parents))
                stream.commit(torch.tensor([min(count, have) for count, have in zip(commit, pending, strict=False)]))
        same(plain, static, 5)
        static.close()
    assert recorder.made == 1


def test_longer_tails_trunks_and_prompts_are_recorded_when_they_come() -> None:
    recorder = Counted()
    case = Case(MOSS, (0,), 2, ENDLESS)
    plain, static = case.plain(), case.static(recorder, budget=300)
    assert recorder.made == 2, "trunks of up to 256 and up to 512 positions"
    same(plain, static, 30)
    assert recorder.made == 2
    same(plain, static, 20)
    assert recorder.made == 3, "a tail of more than 32"
    assert static.state.cache.pending == [50]
    for stream in (plain, static):
        stream.fork(torch.tensor([[1, 1]]))
        stream.commit(torch.tensor([50]))
    same(plain, static, 5)
    assert recorder.made == 3
    same(plain, static, TAIL_ROOM)
    made = recorder.made
    for stream in (plain, static):
        stream.commit(torch.tensor([TAIL_ROOM]))
    same(plain, static, 5)
    assert recorder.made == made + 1, "buffers have moved: what was recorded before is void"


class Watched(TorchDispatchMode):
    """Notes what is done, and on what shapes; fails where the host asks for a value or sends one."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, tuple[torch.Size, ...]]] = []
        self.devices: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)]
        name = str(func)
        waits = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh", "bincount", "equal.")
        assert not any(part in name for part in waits), f"{name} waits for the device, or for the host"
        assert "index" not in name or all(tensor.dtype != torch.bool for tensor in tensors[1:]), f"{name} by a mask"
        self.done.append((name, tuple(tensor.shape for tensor in tensors)))
        out = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.devices.update(tensor.device.type for tensor in [*tensors, *made])
        return out


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_a_step_does_the_same_whatever_the_data_and_asks_the_host_nothing(name: str, guidance: float) -> None:
    case = Case(NETWORKS[name], (0, 1), 3, replace(SAMPLING, repetition_penalty=1.2), guidance)
    runs = []
    for finished in (False, True):
        stream = case.static(Unrecorded())
        stream.advance(4 if finished else 1)
        place = stream._place
        assert place is not None
        place.finished.fill_(finished)
        place.cache.begin()
        with Watched() as watched:
            place._step(256, 32)
        runs.append(watched.done)
    assert runs[0] == runs[1]
    assert len(runs[0]) > 100


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_a_step_of_the_published_size_needs_its_device_alone(guidance: float) -> None:
    """On the device that holds no values: whatever looked at one, or came from elsewhere, would raise or be seen."""
    with torch.device("meta"):
        network = MossNetwork(SIZES["full"]).to(torch.bfloat16).requires_grad_(False)
    plan = Plan.of(2, 16, 1 if guidance == 1.0 else 2, guidance, replace(SAMPLING, repetition_penalty=1.1))
    place = FramePlace(network, plan, Unrecorded())
    place.reserve(1024, 32)
    with Watched() as watched:
        place._step(512, 32)
    assert watched.devices == {"meta"}
    assert place.hidden.dtype == torch.bfloat16


def test_the_watch_sees_what_a_recording_could_not_follow() -> None:
    numbers = torch.arange(3.0)
    for step in (lambda: bool(numbers.any()), lambda: numbers[numbers > 1], lambda: torch.tensor([1.0]) + numbers):
        with pytest.raises(AssertionError, match=r"waits|mask"), Watched():
            step()


def test_bfloat16_weights_give_close_hidden_states() -> None:
    """Codes may part where rounding does; until they do, rows agree."""
    network: FrameNetwork = tiny_moss_network(tiny_moss_config()).to(torch.bfloat16)
    case = Case(network, (0, 1), 8, ENDLESS, 2.0)
    plain, static = case.plain(), case.static(Unrecorded())
    agree = torch.ones(16, dtype=torch.bool)
    for _ in range(12):
        agree &= (plain.advance(1).frames == static.advance(1).frames).all((1, 2))
        both = agree.repeat(2)
        assert static.state.hidden.dtype == torch.bfloat16
        torch.testing.assert_close(static.state.hidden[both], plain.state.hidden[both], rtol=0.05, atol=0.1)
    assert int(agree.sum()) >= 12


RATE = FakeCodec().sample_rate
CONFIG = tiny_moss_config(sample_rate=RATE)


def request(length: int) -> SpeechRequest:
    rows = torch.full((length, 1 + CONFIG.books), CONFIG.audio_pad)
    rows[:, 0] = torch.arange(length) + 7
    return SpeechRequest("word " * length, id=str(length), prompt=rows, unconditional=rows[:2])


class TestLaws(Laws):
    @pytest.fixture
    def subject(self) -> Subject:
        network = tiny_moss_network(CONFIG, stop=0.02)
        engine = MossEngine(network, FakeCodec(), name="static", default_guidance=2.0, recorder=Unrecorded())
        requests = [request(length) for length in (12, 3, 7)]
        return Subject(engine, FakeScorer(), requests, examples=3, sampling=Sampling(repetition_penalty=1.3))


def test_a_search_is_the_same_search_and_its_buffers_are_used_again() -> None:
    network = tiny_moss_network(CONFIG)
    plain, static = (MossEngine(network, FakeCodec(), name="tiny", recorder=how) for how in (None, Unrecorded()))
    searches = [ChunkSearch(engine, FakeScorer()) for engine in (plain, static)]
    static.warm_up([request(9)], 4, Sampling())
    assert static._places is not None
    for length in (9, 5):
        static._places._idle[0].cache._trunk.fill_(torch.nan)  # a search before this one went wrong
        settings = {"n": 4, "beam_width": 2, "chunk_frames": 10, "max_seconds": 3.0, "guidance": 1.0}
        theirs, mine = (search.generate(request(length), **settings) for search in searches)
        assert torch.equal(theirs.frames, mine.frames)
        assert theirs.audio.tobytes() == mine.audio.tobytes()
    assert len(static._places._idle) == 1
    assert mine.performance["graph_capture_seconds"] == 0.0
