"""Reads a VoiceCLAP model folder: `config.json` beside `model.safetensors`. No code of a checkpoint is run.

Names of tensors are open_clip's (`audio.encoder.*`, `audio.proj.*`, `text.transformer.*`, `text.proj.*`). What stands
before the encoder and the BERT may differ, as wrappers make it do, and so may the way a projection is attached
(`audio_proj`, `audio_projection`): both parts are recognised by the names inside them. The audio projection may come
without biases. It does not know what the names in LAION's own files are; an error lists what found no place.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from scorers.voiceclap.config import CheckpointError, VoiceClapConfig
from scorers.voiceclap.features import BINS, Scale, mel_filters, scale_of
from scorers.voiceclap.network import VoiceClap

WEIGHTS = "model.safetensors"
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
    path = folder / WEIGHTS
    stored = read_tensors(path)
    filters = _mel_filters(path, config, stored)
    weights = _named_as_ours(stored)
    with torch.device("meta"):
        network = VoiceClap(config, biased_audio_projection="audio.proj.0.bias" in weights)
    _check(path, network.state_dict(), weights)
    network.load_state_dict(weights, assign=True)
    network.mel_filters = filters
    return network.requires_grad_(False).eval().to(device)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, as float32 on the CPU; `CheckpointError` names what is wrong with one."""
    try:
        with safe_open(str(path), framework="pt") as file:
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: download it again") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is truncated or not a safetensors file ({error}): download it again") from None
    for name, tensor in stored.items():
        if not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{path}: {name} holds values that are not finite: download it again")
    return {name: tensor.float() for name, tensor in stored.items()}


def _mel_filters(path: Path, config: VoiceClapConfig, stored: dict[str, Tensor]) -> Tensor:
    """Take the stored filters [n_mels, 201] out of the tensors; nothing else in a checkpoint has their shape."""
    shape = (config.n_mels, BINS)
    names = [name for name, tensor in stored.items() if tuple(tensor.shape) in (shape, shape[::-1])]
    if len(names) > 1:
        raise CheckpointError(f"{path}: {names[0]} and {names[1]} both look like mel filters: keep one of them")
    if not names:
        _LOG.info("%s stores no mel filters: those of the HTK scale are used, as in training", path)
        return mel_filters("htk", config.n_mels)
    tensor = stored.pop(names[0])
    filters = tensor if tuple(tensor.shape) == shape else tensor.T.contiguous()
    _report_scale(path, names[0], scale_of(filters))
    return filters


def _report_scale(path: Path, name: str, scale: Scale | None) -> None:
    if scale == "htk":
        _LOG.info("%s: the mel filters in %s are on the HTK scale", path, name)
    else:
        found = "on the Slaney scale" if scale == "slaney" else "on no known scale"
        _LOG.warning("%s: the mel filters in %s are %s; HTK was expected. They are used as they are", path, name, found)


def _named_as_ours(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that the network may need, under its names; others keep the name that they have."""
    roots = {
        name.removesuffix(mark): ours
        for mark, ours in ((_AUDIO_MARK, "audio.encoder."), (_TEXT_MARK, "text.transformer."))
        for name in stored
        if name.endswith(f".{mark}")
    }
    named: dict[str, Tensor] = {}
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


def _check(path: Path, expected: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    surplus = [name for name in weights if name not in expected]
    for name, place in expected.items():
        if name not in weights:
            left = f"; found no place for {', '.join(surplus[:5])}" if surplus else ""
            raise CheckpointError(
                f"{path}: tensor {name} of shape {list(place.shape)} is missing{left}. Download the file again, or "
                "rename its tensors if it comes from another program"
            )
        if weights[name].shape != place.shape:
            raise CheckpointError(
                f"{path}: {name} has shape {list(weights[name].shape)}, config.json asks for {list(place.shape)}: "
                "the two files belong to different checkpoints"
            )
    if surplus:
        raise CheckpointError(
            f"{path}: tensor {surplus[0]} has no place in the network that config.json describes: the file is of "
            "another architecture than VoiceCLAP-small and -commercial"
        )
