"""CUDA graphs of the frame step: frames of eager streams, other draws at every replay, captures beside other work."""

import threading
from dataclasses import replace

import pytest
import torch

from codec.fake import FakeCodec
from engine.moss.engine import MossEngine
from engine.moss.graphs import CudaGraphs, Unrecorded
from engine.moss.network import MossNetwork
from search import Sampling, SpeechRequest
from tests.tiny import tiny_moss_config, tiny_moss_network

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and a torch that was built for it"),
]

CONFIG = tiny_moss_config(sample_rate=FakeCodec().sample_rate)
ENDLESS = Sampling(text_temperature=0.0, guidance=2.0, repetition_penalty=1.1)


def requests() -> list[SpeechRequest]:
    rows = torch.full((12, 1 + CONFIG.books), CONFIG.audio_pad)
    rows[:, 0] = torch.arange(12) + 7
    return [SpeechRequest("word", id=f"{length}", prompt=rows[:length], unconditional=rows[:2]) for length in (12, 3)]


def network(dtype: torch.dtype = torch.float32) -> MossNetwork:
    return tiny_moss_network(CONFIG).to("cuda", dtype)


def graphs() -> CudaGraphs:
    return CudaGraphs(torch.device("cuda", torch.cuda.current_device()))


def engine(recorder: CudaGraphs | Unrecorded, which: MossNetwork) -> MossEngine:
    return MossEngine(which, FakeCodec(), name="tiny", recorder=recorder)


@torch.inference_mode()
def spoken(voice: MossEngine, sampling: Sampling = ENDLESS) -> torch.Tensor:
    """50 frames in chunks, with a fork and commits between them."""
    stream = voice.open(requests(), 4, sampling)
    made = []
    for _ in range(5):
        made.append(stream.advance(10).frames)
        stream.fork(torch.tensor([[1, 1, 0, 3], [2, 2, 2, 2]]))
        stream.commit(torch.tensor([0, 10]))
    stream.close()
    return torch.cat(made, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_say_what_the_step_says_without_them(dtype: torch.dtype) -> None:
    """Bug report B6: sampling differed with graphs."""
    which, recorder = network(dtype), graphs()
    frames = spoken(engine(recorder, which))
    assert frames.shape == (8, 50, CONFIG.books)
    assert torch.equal(frames, spoken(engine(Unrecorded(), which)))
    assert recorder.seconds > 0


def test_graphs_say_what_the_plain_stream_says() -> None:
    """In float32: products of other shapes round differently, and in bfloat16 a code may fall on the other side."""
    which = network()
    plain = engine(Unrecorded(), which)
    plain._places = None
    assert torch.equal(spoken(engine(graphs(), which)), spoken(plain))


def test_replays_draw_with_new_numbers() -> None:
    """Bug report B8: 100 replays with equal logits, where one number that is baked in would draw one code."""
    which = network()
    for head in which.audio_lm_heads:
        head.weight = torch.nn.Parameter(torch.zeros_like(head.weight), requires_grad=False)
    frames = spoken(engine(graphs(), which), replace(ENDLESS, repetition_penalty=1.0, top_k=0, top_p=1.0))
    assert len(frames[0, :, 0].unique()) > 8
    again = spoken(engine(graphs(), which), replace(ENDLESS, repetition_penalty=1.0, top_k=0, top_p=1.0, seed=1))
    assert not torch.equal(frames, again)


def test_a_capture_does_not_mind_what_another_thread_does() -> None:
    """Bug report B9: products, copies to the host and new memory on another stream, all the time."""
    which, over, errors = network(), threading.Event(), []

    def busy() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while not over.is_set():
                    left = torch.randn(512, 512, device="cuda")
                    (left @ left).sum().item()
        except RuntimeError as error:
            errors.append(error)

    expected = spoken(engine(graphs(), which))
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            assert torch.equal(spoken(engine(graphs(), which)), expected)
    finally:
        over.set()
        thread.join()
    assert not errors


def test_searches_of_one_kind_share_their_recordings() -> None:
    recorder = graphs()
    voice = engine(recorder, network())
    voice.warm_up(requests(), 4, ENDLESS)
    ahead = recorder.seconds
    first = spoken(voice)
    taken = recorder.seconds
    assert 0 < ahead < taken, "the tail of the request that commits nothing outgrows what is recorded ahead"
    assert torch.equal(first, spoken(voice))
    assert recorder.seconds == taken == voice.graph_capture_seconds
