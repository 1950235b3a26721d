"""Watches a network of the MOSS family while a stream drives it: hidden states, keys and values, logits, decisions.

The network runs as it always does; hooks only look on. It does not know what the numbers should be.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from engine.moss.frames import FrameNetwork
from engine.moss.gpt2 import Gpt2Attention, Gpt2Block
from engine.moss.network import GlobalAttention, GlobalBlock
from engine.moss.stream import Draws
from search.sampling import filtered
from search.state import Attend


class Recorder:
    """Context manager that keeps what passes through the network while it is open, one entry a call.

    Attributes:
        layers: per layer, hidden states entering it; the last list holds the output of the final norm.
        keys, values: per layer, what was written to the cache, `[*, H_kv, T, d]`.
        depth: hidden states of the depth decoder `[rows, D, H]`.
    """

    def __init__(self, network: FrameNetwork) -> None:
        count = network.config.backbone.layers
        self._network = network
        self._handles: list[Any] = []
        self.layers: list[list[Tensor]] = [[] for _ in range(count + 1)]
        self.keys: list[list[Tensor]] = [[] for _ in range(count)]
        self.values: list[list[Tensor]] = [[] for _ in range(count)]
        self.depth: list[Tensor] = []

    def __enter__(self) -> Self:
        network = self._network
        parts = list(network.transformer.modules())
        blocks = [part for part in parts if isinstance(part, (GlobalBlock, Gpt2Block))]
        for index, block in enumerate(blocks):
            self._handles.append(block.register_forward_pre_hook(self._keep_input(index)))
        for part in parts:
            if isinstance(part, (GlobalAttention, Gpt2Attention)):
                self._handles.append(part.register_forward_pre_hook(self._watch_attention))
        self._handles.append(network.transformer.register_forward_hook(self._keep_output(self.layers[-1])))
        self._handles.append(network.local_transformer.register_forward_hook(self._keep_output(self.depth)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep_input(self, index: int) -> Any:
        def hook(_module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self.layers[index].append(arguments[0])

        return hook

    @staticmethod
    def _keep_output(kept: list[Tensor]) -> Any:
        def hook(_module: nn.Module, _arguments: tuple[Any, ...], output: Tensor) -> None:
            kept.append(output)

        return hook

    def _watch_attention(self, _module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        *others, attend = arguments
        return (*others, self._watched(attend))

    def _watched(self, attend: Attend) -> Attend:
        def watching(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self.keys[layer].append(key)
            self.values[layer].append(value)
            return attend(layer, query, key, value)

        return watching


class WatchedDraws:
    """Leaves every decision to other draws and keeps the logits that they were shown, a list entry a frame."""

    def __init__(self, inner: Draws) -> None:
        self._inner = inner
        self.stop_logits: list[Tensor] = []
        self.code_logits: list[list[Tensor]] = []

    def prepare(self, start: int, frames: int) -> None:
        self._inner.prepare(start, frames)

    def stop(self, frame: int, logits: Tensor) -> Tensor:
        self.stop_logits.append(logits)
        self.code_logits.append([])
        return self._inner.stop(frame, logits)

    def code(self, frame: int, book: int, logits: Tensor) -> Tensor:
        self.code_logits[-1].append(logits)
        return self._inner.code(frame, book, logits)


class ForcedDraws:
    """Decisions laid down beforehand: `frames` int64 `[R, T, q]` and `going` bool `[R, T]`."""

    def __init__(self, frames: Tensor, going: Tensor) -> None:
        self._frames, self._going = frames, going

    def prepare(self, start: int, frames: int) -> None:
        assert start + frames <= self._frames.shape[1], "no decisions for these frames"

    def stop(self, frame: int, _logits: Tensor) -> Tensor:
        return ~self._going[:, frame]

    def code(self, frame: int, book: int, _logits: Tensor) -> Tensor:
        return self._frames[:, frame, book]


class TorchDraws:
    """Draws as the reference does: one `torch.multinomial` over all rows a decision, from one seeded CPU generator.

    The distributions are ours; only the randomness is the reference's, which depends on the number of rows.
    """

    def __init__(self, seed: int, *, temperature: float, top_k: int, top_p: float) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._audio = {"temperature": temperature, "top_k": top_k, "top_p": top_p}

    def prepare(self, start: int, frames: int) -> None:
        pass

    def stop(self, _frame: int, logits: Tensor) -> Tensor:
        return self._draw(distribution(logits, temperature=1.0, top_k=0, top_p=1.0)) == 1

    def code(self, _frame: int, _book: int, logits: Tensor) -> Tensor:
        return self._draw(distribution(logits, **self._audio))

    def _draw(self, probabilities: Tensor) -> Tensor:
        return torch.multinomial(probabilities, 1, generator=self._generator).squeeze(1)


def distribution(logits: Tensor, *, temperature: float, top_k: float, top_p: float) -> Tensor:
    """The probabilities that our sampler draws from, `[..., V]` in the order of the vocabulary."""
    probabilities, ids = filtered(logits, temperature=temperature, top_k=int(top_k), top_p=top_p)
    return torch.zeros_like(logits).scatter_(-1, ids, probabilities)


def stacked_logits(frames: list[list[Tensor]]) -> Tensor:
    """Per frame and codebook `[R, V_k]` -> `[R, T, q, V]`, minus infinity beyond a smaller codebook.

    A frame that was not spoken, because all rows stopped before it, is left out.
    """
    frames = [books for books in frames if books]
    if not frames:
        return torch.empty(0)
    widest = max(logits.shape[-1] for books in frames for logits in books)
    padded = [[nn.functional.pad(x, (0, widest - x.shape[-1]), value=-torch.inf) for x in books] for books in frames]
    return torch.stack([torch.stack(books, 1) for books in padded], 1)
