"""One frame of the depth decoder, a codebook at a time, on a static cache that is thrown away with the frame.

It does not know how codes are chosen: it takes a code and gives the logits of the next book.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.moss.frames import FrameNetwork


class DepthPass:
    """The depth decoder over one frame of `rows` rows: `begin`, then `decide`, then `step` with each code.

    Keys and values are `[layers, 2, rows, heads, D, d]`; attention reads depths 0 to the current one.
    """

    def __init__(self, network: FrameNetwork, rows: int) -> None:
        config, decoder = network.config, network.local_transformer
        weight = network.text_embedding.weight
        shape = (config.local.layers, 2, rows, config.local.heads, decoder.depths, decoder.head_dim)
        self._network = network
        self._cache = torch.empty(shape, dtype=weight.dtype, device=weight.device)
        self._depth = self._book = 0
        self._scale = decoder.head_dim**-0.5

    def begin(self, hidden: Tensor) -> Tensor:
        """Global hidden `[rows, H]` -> depth hidden `[rows, H]` of depth 0, which the stop head reads."""
        assert self._depth == 0, "a frame begins once"
        return self._advance(hidden)

    def decide(self, hidden: Tensor, text: Tensor) -> Tensor:
        """What `begin` gave and the text ids int64 `[rows]` chosen by it -> depth hidden `[rows, H]` of book 0."""
        if self._network.decision_depths:
            return self._advance(self._network.text_embedding(text))
        return hidden

    def step(self, codes: Tensor) -> Tensor:
        """Codes int64 `[rows]` of the book just drawn -> depth hidden `[rows, H]` that the next book's head reads."""
        inputs = self._network.audio_embeddings[self._book](codes)
        self._book += 1
        return self._advance(inputs)

    def _advance(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self._network.local_transformer(inputs.unsqueeze(1), self._depth, self._attend)
        self._depth += 1
        return hidden.squeeze(1)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = self._cache[layer, 0], self._cache[layer, 1]
        keys[:, :, self._depth] = key.squeeze(2)
        values[:, :, self._depth] = value.squeeze(2)
        seen = self._depth + 1
        scores = (query @ keys[:, :, :seen].transpose(-1, -2)).float() * self._scale
        attended: Tensor = scores.softmax(-1).to(value.dtype) @ values[:, :, :seen]
        return attended
