"""A head that hears voices with VoiceCLAP: one embedding a clip, read by predictors and compared with a style in words.

The model hears 30 s, padded with silence: an encode costs the same however short the clip is. It does not know which
words were said.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from codec.checkpoints.hub import located
from codec.checkpoints.tensors import WEIGHTS
from scorers.heads import Clip, Judgement, Term
from scorers.rereader import Rereader
from scorers.voiceclap.config import VoiceClapConfig
from scorers.voiceclap.features import SAMPLE_RATE, fitted
from scorers.voiceclap.network import VoiceClap
from scorers.voiceclap.predictors import Predictor, load_predictors
from scorers.voiceclap.query import QUERY_FIELDS, TOKENIZER, Encode, Query, QueryField, load_tokenizer, query_of
from scorers.voiceclap.weights import load_network
from search.request import SpeechRequest

_BATCH = 8  # clips in one pass of an accelerator; 30 s of each are held
_REMEMBERED = 64  # embeddings: a step of 64 rows, none of which has said more since


class VoiceClapHead:
    """See the module. Terms: one a predictor, then `style` where the model folder has a tokenizer."""

    name = "voiceclap"
    sample_rate = SAMPLE_RATE

    def __init__(
        self,
        network: VoiceClap,
        predictors: Sequence[Predictor],
        *,
        encode: Encode | None = None,
        mean: Tensor | None = None,
        query_from: QueryField = "instruction",
    ) -> None:
        self.device = network.mel_filters.device
        self.terms = tuple(Term(predictor.name, meaning=predictor.meaning) for predictor in predictors)
        if encode is not None:
            self.terms += (Term("style", meaning=f"cosine of the voice and the request's {query_from}, -1 to 1"),)
        self._network, self._predictors = network, tuple(predictors)
        self._encode, self._mean, self._query_from = encode, mean, query_from
        self._known: OrderedDict[bytes, Tensor] = OrderedDict()

    def prepare(self, request: SpeechRequest) -> Query:
        """The style that the request asks for, embedded."""
        if self._encode is None:
            return Query(None)
        return query_of(request, self._query_from, self._encode, self._network)

    def judge(self, clips: Sequence[Clip]) -> list[Judgement]:
        """Only the first 30 s of a clip are heard; its note says so where there is more."""
        return [self._judged(clip, embedding) for clip, embedding in zip(clips, self.embed(clips), strict=True)]

    def embed(self, clips: Sequence[Clip]) -> list[Tensor]:
        """Unit vectors [embed_dim] on the CPU, each as if its clip were alone."""
        heard = [torch.from_numpy(np.ascontiguousarray(clip.pcm[: self._network.samples])) for clip in clips]
        keys = [hashlib.blake2b(wave.numpy().tobytes(), digest_size=16).digest() for wave in heard]
        found = {key: self._known[key] for key in keys if key in self._known}
        new = {key: wave for key, wave in zip(keys, heard, strict=True) if key not in found}
        # On a CPU a clip fills the cores alone, and by itself it is rounded as it always is.
        size = 1 if self.device.type == "cpu" else _BATCH
        for start in range(0, len(new), size):
            some = list(new)[start : start + size]
            waves = torch.stack([fitted(new[key], self._network.samples) for key in some]).to(self.device)
            with torch.inference_mode():
                found |= zip(some, self._network.embed_audio(waves).cpu(), strict=True)
        self._remember(found)
        return [found[key] for key in keys]

    def _remember(self, embeddings: dict[bytes, Tensor]) -> None:
        """Keep the newest: rows that have ended are heard again, unchanged, at every step of the others."""
        for key, embedding in embeddings.items():
            self._known[key] = embedding
            self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _judged(self, clip: Clip, embedding: Tensor) -> Judgement:
        if not bool(embedding.isfinite().all()):
            nothing = {term.name: float("nan") for term in self.terms}
            return Judgement(nothing, {"not_judged": "the audio is too loud for the model's arithmetic"})
        terms: dict[str, float] = {}
        note: dict[str, Any] = {}
        for predictor in self._predictors:
            terms[predictor.name], words = predictor.predict(embedding)
            if words:
                note[f"{predictor.name}_class"] = words  # records hold notes and terms side by side
        if self._encode is not None:
            query: Query = clip.prepared
            terms["style"] = float("nan") if query.embedding is None else self._cosine(embedding, query.embedding)
            if query.embedding is None:
                note["not_judged"] = query.reason
        if len(clip.pcm) > self._network.samples:
            note["heard_seconds"] = self._network.samples / SAMPLE_RATE
        return Judgement(terms, note)

    def _cosine(self, audio: Tensor, text: Tensor) -> float:
        if self._mean is not None:
            audio, text = audio - self._mean, text - self._mean
        return float(torch.cosine_similarity(audio, text, dim=0))


def load(
    device: torch.device,
    *,
    model: str,
    heads: str | list[str] | None = None,
    mean: str | None = None,
    query_from: QueryField = "instruction",
) -> Rereader:
    """VoiceCLAP-small, or another model of its architecture, with the predictors that go with it.

    Args:
        model: folder with `config.json`, `model.safetensors` and, for `style`, `tokenizer.json`; or a hub id.
        heads: folder of predictor files (`.pt`, `.safetensors`), or a list of files; None is none.
        mean: `.npy` file with a vector [embed_dim] that is subtracted from both sides before `style` compares them:
            raw cosines of this model lie close together.
        query_from: field of the request that names the style, "instruction" or "text".

    Raises:
        ValueError: an option is not allowed, or a file cannot be used; the message names it.
        ModuleNotFoundError: a package that the options need is not installed.
    """
    _check_kinds(model, heads, mean)
    if query_from not in QUERY_FIELDS:
        raise ValueError(f"query_from: {query_from!r} is not known; allowed are {', '.join(QUERY_FIELDS)}")
    folder = _folder(model)
    styled = (folder / TOKENIZER).is_file()
    if heads is None and not styled:
        raise ValueError(f"heads: none are given, and {folder} has no {TOKENIZER} for 'style': nothing could be judged")
    if mean is not None and not styled:
        raise ValueError(f"mean: {mean!r} is for 'style', which needs {TOKENIZER} in {folder}")
    # What is small is read first, so that a mistake is told before the weights are.
    config = VoiceClapConfig.load(folder / "config.json")
    predictors = [] if heads is None else load_predictors(heads, config.embed_dim)
    encode = load_tokenizer(folder, config.text_max_position_embeddings) if styled else None
    centre = None if mean is None else _mean(Path(mean).expanduser(), config.embed_dim)
    network = load_network(folder, device)
    return Rereader(VoiceClapHead(network, predictors, encode=encode, mean=centre, query_from=query_from))


def _check_kinds(model: object, heads: object, mean: object) -> None:
    """What a file of rewards gives may be of any kind."""
    if not isinstance(model, str):
        raise ValueError(f"model: {model!r} is a {type(model).__name__}; a folder or a hub id is needed")
    listed = isinstance(heads, list) and bool(heads) and all(isinstance(path, str) for path in heads)
    if not (heads is None or isinstance(heads, str) or listed):
        raise ValueError(f"heads: {heads!r} is not allowed; a folder or a list of files is needed")
    if not (mean is None or isinstance(mean, str)):
        raise ValueError(f"mean: {mean!r} is a {type(mean).__name__}; an .npy file is needed")


def _folder(model: str) -> Path:
    try:
        return located(model, ("config.json", WEIGHTS, TOKENIZER))
    except ValueError as error:
        raise ValueError(f"model: {error}") from None


def _mean(path: Path, width: int) -> Tensor:
    try:
        vector = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(f"mean: {path} cannot be read as an .npy file: {error}") from None
    if vector.shape != (width,) or vector.dtype.kind != "f" or not np.isfinite(vector).all():
        raise CheckpointError(
            f"mean: {path} holds {vector.dtype} {list(vector.shape)}; {width} finite floating point numbers are needed"
        )
    return torch.from_numpy(vector.astype(np.float32))
