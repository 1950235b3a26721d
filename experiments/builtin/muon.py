"""Muon (Keller Jordan et al., 2024) for the hidden matrices, AdamW for everything else, behind one `step`.

Muon moves a matrix along the nearest orthogonal matrix to its momentum, found by a quintic Newton-Schulz iteration;
matrices of one shape are iterated together. It does not know the learning-rate schedule: the caller scales every step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

_QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalised(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Singular values of `[M, rows, columns]` brought to about 1; worked in bfloat16, returned in the input's dtype."""
    a, b, c = _QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    restored: Tensor = (x.mT if tall else x).to(matrices.dtype)
    return restored


class Muon:
    """Momentum, orthogonalised, with decoupled weight decay; steps have a root mean square of 0.2 * rate, as Adam's."""

    def __init__(self, matrices: Iterable[nn.Parameter], rate: float, momentum: float, decay: float) -> None:
        self.rate, self.momentum, self.decay = rate, momentum, decay
        groups: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for matrix in matrices:
            groups[matrix.shape].append(matrix)
        self.groups = list(groups.values())
        self.moments = [torch.zeros(len(group), *group[0].shape) for group in self.groups]

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """One update with the learning rate `scale * rate`; every matrix must have a gradient."""
        rate = scale * self.rate
        for group, moment in zip(self.groups, self.moments, strict=True):
            gradient = torch.stack([matrix.grad for matrix in group if matrix.grad is not None])
            moment.lerp_(gradient, 1.0 - self.momentum)
            update = orthogonalised(gradient.lerp(moment, self.momentum))
            update *= 0.2 * max(group[0].shape) ** 0.5
            for matrix, change in zip(group, update.unbind(), strict=True):
                matrix.mul_(1.0 - rate * self.decay).sub_(change, alpha=rate)


class Optimizer:
    """Muon for two-dimensional parameters of transformer blocks, AdamW for embeddings, norms, biases and heads."""

    def __init__(self, network: nn.Module, extra: nn.Module, rate: float, decay: float = 0.05) -> None:
        named = list(network.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and ("layers." in name or ".h." in name)]
        chosen = {id(matrix) for matrix in matrices}
        others = [p for _, p in named if id(p) not in chosen] + list(extra.parameters())
        self.rate = rate
        self.muon = Muon(matrices, rate, momentum=0.95, decay=decay)
        self.adam = torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        self.parameters = [*matrices, *others]

    def step(self, scale: float) -> None:
        """Clip the gradients to norm 1, update with the learning rate `scale * rate`, and drop the gradients."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.rate * scale
        self.adam.step()
        self.muon.step(scale)
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"adam": self.adam.state_dict(), "moments": self.muon.moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adam.load_state_dict(state["adam"])
        self.muon.moments = [moment.clone() for moment in state["moments"]]
