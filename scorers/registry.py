"""Names of scorers, and the one function that turns a name into an object. Knows nothing of how a scorer works.

Scorers are imported when they are asked for, so that none of them costs anything to those who use another.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from search.devices import device_of
from search.protocols import Scorer

Maker = Callable[[torch.device], Scorer]


def _listener(device: torch.device) -> Scorer:
    from scorers.builtin.scorer import Listener

    return Listener.load(device=device)


def _fake(device: torch.device) -> Scorer:
    from scorers.fake import FakeScorer

    return FakeScorer(device=device)


SCORERS: dict[str, Maker] = {"builtin": _listener, "listener": _listener, "fake": _fake}


def load_scorer(spec: str, device: torch.device | str | None = None) -> Scorer:
    """The scorer of that name, on `device` (None: the CPU).

    Raises:
        ValueError: no scorer has this name (the message lists those that exist), or the device is not there.
    """
    if not isinstance(spec, str):
        raise TypeError(f"scorer: {spec!r} is a {type(spec).__name__}; give a name such as 'builtin'")
    if spec not in SCORERS:
        raise ValueError(f"scorer: {spec!r} is not known; allowed are {', '.join(sorted(SCORERS))}")
    return SCORERS[spec](device_of(device))
