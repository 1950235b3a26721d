"""Whisper as a reward head: `load` checks every option before it reads any weights. Knows no audio.

The weights are OpenAI's Whisper (MIT licence), converted for CTranslate2, the runtime of faster-whisper.
"""

from __future__ import annotations

import torch

from scorers.rereader import Rereader
from search.devices import device_of


def load(
    device: torch.device,
    *,
    model: str = "base",
    language: str | None = None,
    compute_type: str | None = None,
    word_timestamps: bool = False,
    cpu_threads: int = 1,
) -> Rereader:
    """A scorer that listens with Whisper.

    Args:
        device: the CPU, or one CUDA device ("cuda:1" is the second).
        model: a name ("base"), the id of a converted model on the hub, or a local folder in faster-whisper's format.
        language: English name or code of what is spoken; None is the request's own language, else English.
        compute_type: of the weights, as CTranslate2 calls it; None is "int8" on the CPU and "float16" elsewhere.
        word_timestamps: put `words` into the notes: [word, begin, end] in seconds. Costs another pass of the decoder.
        cpu_threads: that a pass may use, on the CPU.

    Raises:
        ValueError: an option is not allowed, the device is not there, or there are no such weights here or in reach;
            the message names the option, and what is allowed or what to install.
    """
    import ctranslate2

    from scorers.whisper.languages import code_of
    from scorers.whisper.recogniser import CTranslate2Recogniser
    from scorers.whisper.scorer import WhisperHead
    from scorers.whisper.weights import folder_of

    device = device_of(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: {str(device)!r} is nothing that CTranslate2 runs on; give 'cpu', 'cuda' or 'cuda:1'")
    if device.type == "cuda" and (device.index or 0) >= ctranslate2.get_cuda_device_count():
        raise ValueError(f"device: CTranslate2 finds no {str(device)!r}; give 'cpu', or install its CUDA libraries")
    kind = compute_type or ("int8" if device.type == "cpu" else "float16")
    allowed = ctranslate2.get_supported_compute_types(device.type, device.index or 0)
    if kind not in allowed:
        raise ValueError(f"compute_type: {kind!r} does not run on {device}; allowed are {', '.join(sorted(allowed))}")
    if type(cpu_threads) is not int or cpu_threads < 1:
        raise ValueError(f"cpu_threads: {cpu_threads!r} is not allowed; give a whole number from 1")
    if not isinstance(word_timestamps, bool):
        raise ValueError(f"word_timestamps: {word_timestamps!r} is not allowed; give true or false")
    if language is not None:
        code_of(language)
    # CTranslate2 sets OpenMP's threads for whoever loads it, and torch would compute on as few from then on.
    before = torch.get_num_threads()
    try:
        recogniser = CTranslate2Recogniser(folder_of(model), device, kind, cpu_threads)
    finally:
        torch.set_num_threads(before)
    return Rereader(WhisperHead(recogniser, device, language=language, word_timestamps=word_timestamps))
