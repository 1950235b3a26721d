"""Reads a VoiceCLAP model folder: `config.json` beside safetensors files. No code of a checkpoint is run.

Names of tensors are open_clip's (`audio.encoder.*`, `audio.proj.*`, `text.transformer.*`, `text.proj.*`). What stands
before the encoder and the BERT may differ, as wrappers make it do, and so may the way a projection is attached
(`audio_proj`, `audio_projection`): both parts are recognised by the names inside them. The audio projection may come
without biases. It does not know what the names in LAION's own files are; an error lists what found no place.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from codec.checkpoints.errors import CheckpointError
from codec.checkpoints.tensors import StoredTensor, open_tensors
from scorers.voiceclap.config import MODELS, VoiceClapConfig
from scorers.voiceclap.features import BINS, Scale, mel_filters, scale_of
from scorers.voiceclap.network import VoiceClap

_LOG = logging.getLogger(__name__)
_AUDIO_MARK, _TEXT_MARK = "conv1.weight", "embeddings.word_embeddings.weight"
_PROJECTION = re.compile(r"(?:.*\.)?(audio|text)[._]proj\w*\.([02]\.(?:weight|bias))")
# Scale and bias of training's similarities, BERT's positions and pooler, and what would join audio to a language model.
_UNUSED = re.compile(r"(?:.*\.)?(logit_scale|logit_bias|position_ids|pooler\..*|audio_bos_eos_token\.weight)")


def load_network(folder: Path, device: torch.device) -> VoiceClap:
    """The network of a model folder, frozen, float32, on `device`, with its mel filters.

    Stored mel filters are used whatever their scale, which is logged; a folder without any gets HTK's.

    Raises:
        CheckpointError: a file is missing or damaged, or a tensor is missing, unknown, of the wrong shape or type, or
            not finite; the message names it.
    """
    config = VoiceClapConfig.load(folder / "config.json")
    with ExitStack() as open_files:
        stored = open_tensors(folder, open_files)
        filters = _mel_filters(folder, config, stored)
        named = _named_as_ours(stored)
        with torch.device("meta"):
            network = VoiceClap(config, biased_audio_projection="audio.proj.0.bias" in named)
        expected = network.state_dict()
        _check_names(folder, expected, named)
        weights = {name: named[name].read(place.shape).float() for name, place in expected.items()}
    network.load_state_dict(weights, assign=True)
    network.mel_filters = filters
    return network.requires_grad_(False).eval().to(device)


def _mel_filters(folder: Path, config: VoiceClapConfig, stored: dict[str, StoredTensor]) -> Tensor:
    """Take the stored filters [n_mels, 201] out of the tensors; nothing else in a checkpoint has their shape."""
    shape = [config.n_mels, BINS]
    found = [tensor for tensor in stored.values() if tensor.shape in (shape, shape[::-1])]
    if len(found) > 1:
        raise CheckpointError(
            f"{found[0].path}: {found[0].name} and {found[1].name} both look like mel filters: keep one of them"
        )
    if not found:
        _LOG.info("%s stores no mel filters: those of the HTK scale are used, as in training", folder)
        return mel_filters("htk", config.n_mels)
    tensor = stored.pop(found[0].name).read(found[0].shape).float()
    filters = tensor if found[0].shape == shape else tensor.T.contiguous()
    _report_scale(found[0].path, found[0].name, scale_of(filters))
    return filters


def _report_scale(path: Path, name: str, scale: Scale | None) -> None:
    if scale == "htk":
        _LOG.info("%s: the mel filters in %s are on the HTK scale", path, name)
    else:
        found = "on the Slaney scale" if scale == "slaney" else "on no known scale"
        _LOG.warning("%s: the mel filters in %s are %s; HTK was expected. They are used as they are", path, name, found)


def _named_as_ours(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors that the network may need, under its names; others keep the name that they have."""
    roots = {
        name.removesuffix(mark): ours
        for mark, ours in ((_AUDIO_MARK, "audio.encoder."), (_TEXT_MARK, "text.transformer."))
        for name in stored
        if name.endswith(f".{mark}")
    }
    named: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        if _UNUSED.fullmatch(name):
            continue
        projection = _PROJECTION.fullmatch(name)
        root = max((root for root in roots if name.startswith(root)), key=len, default=None)
        if projection is not None:
            named[f"{projection[1]}.proj.{projection[2]}"] = tensor
        elif root is not None:
            named[roots[root] + name.removeprefix(root)] = tensor
        else:
            named[name] = tensor
    return named


def _check_names(folder: Path, expected: Mapping[str, Tensor], named: Mapping[str, StoredTensor]) -> None:
    missing = [name for name in expected if name not in named]
    surplus = [tensor for name, tensor in named.items() if name not in expected]
    if missing:
        left = f"; found no place for {', '.join(tensor.name for tensor in surplus[:5])}" if surplus else ""
        raise CheckpointError(
            f"{folder}: tensor {missing[0]} of shape {list(expected[missing[0]].shape)} is missing{left}. Download the "
            "weights again, or rename their tensors if they come from another program"
        )
    if surplus:
        raise CheckpointError(
            f"{surplus[0].path}: tensor {surplus[0].name} has no place in the network that config.json describes: the "
            f"file is of another architecture than {MODELS}"
        )
