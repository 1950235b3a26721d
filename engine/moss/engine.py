"""The engine of the layout: a network, the codec of its frames, and a builder that turns requests into prompts.

It does not know which voice it is: names, defaults and front ends come from whoever builds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.moss.frames import FrameNetwork
from engine.moss.graphs import CudaGraphs, Recorder
from engine.moss.prompt import Prompt, PromptBuilder, ReadyPrompts, ready_prompt
from engine.moss.static_stream import FramePlaces, StaticStream
from engine.moss.stream import MossStream, RandomDraws
from search.config import Sampling
from search.noise import RowNoise
from search.protocols import Codec
from search.request import SpeechRequest


class MossEngine:
    """Speaks with any checkpoint in the MOSS-TTS-Local layout.

    Args:
        network: frozen, as `load_network` returns it.
        codec: turns the network's frames into sound; its sample rate must be the checkpoint's.
        prompts: builds prompts from text; without it every request must carry its own rows.
        default_guidance: the scale where `Sampling.guidance` is None and the requests have an unconditional prompt.
        recorder: records the steps of streams on fixed buffers; None is CUDA graphs on a GPU, and elsewhere streams
            whose buffers grow with their audio.
    """

    def __init__(
        self,
        network: FrameNetwork,
        codec: Codec,
        *,
        name: str,
        prompts: PromptBuilder | None = None,
        default_guidance: float = 1.0,
        recorder: Recorder | None = None,
    ) -> None:
        if codec.sample_rate != network.config.sample_rate:
            raise ValueError(
                f"sampling_rate: the checkpoint speaks at {network.config.sample_rate} Hz, "
                f"its codec at {codec.sample_rate} Hz; give the codec it was trained with"
            )
        self.name, self.codec = name, codec
        self.sample_rate, self.frame_rate, self.hop = codec.sample_rate, codec.frame_rate, codec.hop
        self.device = network.text_embedding.weight.device
        self.network = network
        self._prompts = prompts or ReadyPrompts()
        self._default_guidance = default_guidance
        if recorder is None and self.device.type == "cuda":
            recorder = CudaGraphs(self.device)
        self._places = None if recorder is None else FramePlaces(network, recorder)

    def open(self, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> MossStream:
        """Build and read the prompts, once each; raises `ValueError` for a request that cannot be spoken."""
        prompts = [self._prompt(request) for request in requests]
        noise = RowNoise(sampling.seed, [request.id for request in requests], n, self.device)
        draws = RandomDraws(noise, sampling, self.network.config.books, self.frame_rate)
        guidance = self._guidance(sampling.guidance, prompts)
        if self._places is None:
            penalty = sampling.repetition_penalty
            return MossStream(self.network, prompts, n, draws, guidance=guidance, penalty=penalty)
        return StaticStream(
            self.network,
            prompts,
            n,
            draws,
            guidance=guidance,
            sampling=sampling,
            places=self._places,
            budget=max(self._prompts.budget(request) for request in requests),
        )

    def warm_up(self, requests: Sequence[SpeechRequest], n: int, sampling: Sampling) -> None:
        """Make now what searches of such requests find ready later: on a GPU the graphs of their steps.

        `open` does it too, but scorers may be at work on the device by then.
        """
        self.open(requests, n, sampling).close()

    @property
    def graph_capture_seconds(self) -> float:
        """Seconds that all recordings of steps have taken so far."""
        return self._places.recorder.seconds if self._places else 0.0

    def budget(self, request: SpeechRequest) -> int:
        """Frames that a sane reading of the text can take; raises `ValueError` where `open` would for this request."""
        self._prompt(request)
        return self._prompts.budget(request)

    def _prompt(self, request: SpeechRequest) -> Prompt:
        if request.prompt is not None:
            return ready_prompt(request, self.network.config)
        if request.unconditional is not None:
            raise ValueError("unconditional: given without a prompt; give both, or let the engine build both")
        return self._prompts.build(request)

    def _guidance(self, scale: float | None, prompts: Sequence[Prompt]) -> float:
        missing = sum(prompt.unconditional is None for prompt in prompts)
        if scale is None:
            scale = 1.0 if missing == len(prompts) else self._default_guidance
        if scale != 1.0 and missing:
            raise ValueError(
                f"guidance: {scale:g} compares with an unconditional prompt, which {missing} of {len(prompts)} "
                "requests do not have; give SpeechRequest.unconditional, or use guidance 1"
            )
        # A condition compared with itself is itself, whatever the scale: one side says it all.
        return scale if any(_sides_differ(prompt) for prompt in prompts) else 1.0


def _sides_differ(prompt: Prompt) -> bool:
    return prompt.unconditional is not None and not torch.equal(prompt.conditional, prompt.unconditional)
