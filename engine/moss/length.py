"""How many frames a sane reading of a text can take. It does not know who reads, nor how fast."""

from __future__ import annotations

import math
import re

# What OpenMOSS publishes for English and for Chinese, whose characters are syllables.
_FRAMES_PER_LETTER, _FRAMES_PER_IDEOGRAM = 0.867, 3.098
_FRAMES_PER_SECOND = 12.5
_SLACK = 2.2  # LAION's factor between the expected length and the longest one allowed
_SPARE_FRAMES = 25

_IDEOGRAM = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_PAUSE = re.compile(r"\[pause\s+(\d+(?:\.\d+)?)\s*s\]", re.IGNORECASE)


def frame_budget(text: str) -> int:
    """Frames at 12.5 Hz that the text can take; a pause that it asks for, such as `[pause 1.5s]`, takes its time."""
    pauses = sum(float(seconds) for seconds in _PAUSE.findall(text))
    words = _PAUSE.sub("", text)
    ideograms = len(_IDEOGRAM.findall(words))
    expected = _FRAMES_PER_IDEOGRAM * ideograms + _FRAMES_PER_LETTER * (len(words) - ideograms)
    return math.ceil(_SLACK * expected + _FRAMES_PER_SECOND * pauses) + _SPARE_FRAMES
