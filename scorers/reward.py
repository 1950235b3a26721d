"""From the terms of a candidate set to one reward a candidate. Pure arithmetic; knows no head and no file.

With terms t signed so that higher is better, weights w > 0, normalisations f and gates g in [0, 1]:

    core = sum_t w_t * f_t(t)            reward = core * G where core >= 0, core * (2 - G) where core < 0,  G = prod g

The usual product, core * G, would thank a bad candidate (core < 0) for its word errors. Bent at zero it falls with
every gate, whatever the core is, and is the usual product wherever that is right. A term that no candidate of the set
has contributes nothing, not even a constant; a candidate that lacks a term which others have cannot be compared: NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Normalisation = Literal["none", "minmax", "zscore", "reference"]


@dataclass(frozen=True)
class WeightedTerm:
    """How a term enters the sum.

    Attributes:
        sign: 1 where higher is better, -1 where lower is.
        weight: above 0.
        normalise: "none"; "minmax", to 0..1 in the candidate set, 0.5 where all are equal; "zscore" in the candidate
            set, 0 where all are equal; "reference", by the stored `mean` and `sd`.
    """

    sign: float
    weight: float
    normalise: Normalisation = "none"
    mean: float = 0.0
    sd: float = 1.0


@dataclass(frozen=True)
class Gate:
    """A factor that is 1 where a term is at least as good as `full`, 0 where as bad as `zero`, and linear between.

    With `full == zero` it is a step that passes at exactly that value.
    """

    sign: float
    full: float
    zero: float


def compose(
    raw: Mapping[str, Tensor], terms: Mapping[str, WeightedTerm], gates: Mapping[str, Gate]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Rewards of candidate sets.

    Args:
        raw: float [B, N] by name, B sets of N candidates; NaN is "cannot judge".

    Returns:
        The reward, float32 [B, N], NaN for candidates that cannot be compared and for sets without any term; and what
        each present term and gate contributed, float32 [B, N] by name: `w_t * f_t(t)` and `g`.
    """
    anyone = next(iter(raw.values()))
    core, factor = torch.zeros(anyone.shape, dtype=torch.float64), torch.ones(anyone.shape, dtype=torch.float64)
    judged, lacking = torch.zeros(len(core), dtype=torch.bool), torch.zeros(core.shape, dtype=torch.bool)
    shares: dict[str, Tensor] = {}
    for name, term in terms.items():
        values, missing, present = _signed(raw[name], term.sign)
        share = torch.where(present[:, None], term.weight * normalised(values, term), 0.0)
        core, judged, lacking = core + share.nan_to_num(0.0), judged | present, lacking | missing
        shares[name] = share
    for name, gate in gates.items():
        values, missing, present = _signed(raw[name], gate.sign)
        share = torch.where(present[:, None], opened(values, gate), 1.0)
        factor, lacking = factor * share.nan_to_num(1.0), lacking | missing
        shares[f"gate {name}"] = share
    reward = torch.where(core >= 0, core * factor, core * (2.0 - factor))
    reward = reward.masked_fill(lacking | ~judged[:, None], torch.nan)
    # Adding zero turns -0.0, which people take for a deduction, into 0.0.
    return reward.float() + 0.0, {name: share.float() + 0.0 for name, share in shares.items()}


def normalised(values: Tensor, term: WeightedTerm) -> Tensor:
    """Signed values float64 [B, N] on the term's scale; NaN stays NaN and counts for nothing."""
    if term.normalise == "none":
        return values
    if term.normalise == "reference":
        return (values - term.sign * term.mean) / term.sd
    low = values.nan_to_num(torch.inf).amin(1, keepdim=True)
    high = values.nan_to_num(-torch.inf).amax(1, keepdim=True)
    level = (high == low) & values.isfinite()
    if term.normalise == "minmax":
        return torch.where(level, 0.5, (values - low) / (high - low))
    centred = values - values.nanmean(1, keepdim=True)
    spread = centred.square().nanmean(1, keepdim=True).sqrt()
    return torch.where(level, 0.0, centred / spread)


def opened(values: Tensor, gate: Gate) -> Tensor:
    """How far a gate is open for signed values; 0 to 1, NaN for NaN."""
    full, zero = gate.sign * gate.full, gate.sign * gate.zero
    if full == zero:
        return torch.where(values.isnan(), values, (values >= full).double())
    return ((values - zero) / (full - zero)).clamp(0.0, 1.0)


def _signed(raw: Tensor, sign: float) -> tuple[Tensor, Tensor, Tensor]:
    """Signed values, NaN where they are no finite number; candidates that lack what others of their set have; sets
    that have it. Float64 [B, N], bool [B, N], bool [B]."""
    values = (raw.double() * sign).masked_fill(~raw.isfinite(), torch.nan)
    present = values.isfinite().any(1)
    return values, values.isnan() & present[:, None], present
