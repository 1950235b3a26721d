"""Small marks that pages share: numbers as people read them, and waveforms as a path. Knows nothing of any page."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


def with_unit(value: object, form: str) -> str:
    """A number in its form, with a true minus and no negative zero; a dash for what is absent or NaN; else text."""
    if isinstance(value, (int, float)):
        return form.format(value + 0.0).replace("-", "−") if math.isfinite(value) else "–"
    return "–" if value is None else str(value)


def outline(audio: NDArray[np.floating], count: int) -> str:
    """An SVG path of `count` upright bars in a box `count` wide and 2 high, centred on 1.

    Each is as long as the loudest sample of its stretch, on a square-root scale, so that quiet speech can be seen.
    """
    edges = np.linspace(0, len(audio), count + 1).round().astype(int)
    path = []
    for place, (start, end) in enumerate(pairwise(edges)):
        loudest = float(np.abs(audio[start:end]).max()) if end > start else 0.0
        height = max(0.03, min(1.0, loudest) ** 0.5)
        path.append(f"M{place + 0.5:g} {1 - height:.2f}V{1 + height:.2f}")
    return "".join(path)
