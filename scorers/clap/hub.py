"""The towers of transformers' `ClapModel`, from a folder or a hub. Knows no checkpoint of LAION's own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from codec.checkpoints.hub import FILES, located
from scorers.clap.head import TEXT_TOKENS
from scorers.clap.waveform import SAMPLE_RATE, SPAN, Waveform

PICKLED = "pytorch_model.bin"


class HubTowers:
    """See `Towers`; `network` is a `ClapModel` in evaluation mode, without feature fusion."""

    def __init__(self, network: Any, processor: Any) -> None:
        self._network, self._tokenizer, self._features = network, processor.tokenizer, processor.feature_extractor
        self.device = network.device

    def tokens(self, text: str) -> int:
        return len(self._tokenizer(text)["input_ids"])

    def words(self, text: str) -> Tensor:
        read = self._tokenizer(
            text, padding="max_length", truncation=True, max_length=TEXT_TOKENS, return_tensors="pt"
        ).to(self.device)
        hidden = self._network.text_model(input_ids=read["input_ids"], attention_mask=read["attention_mask"])
        return F.normalize(self._network.text_projection(hidden.pooler_output), dim=-1)[0].cpu()

    def sounds(self, audio: Waveform) -> Tensor:
        # "rand_trunc" cuts nothing here; it names the mel filters of networks without feature fusion.
        features = self._features(list(audio), sampling_rate=SAMPLE_RATE, truncation="rand_trunc", return_tensors="pt")
        hidden = self._network.audio_model(input_features=features["input_features"].to(self.device))
        return F.normalize(self._network.audio_projection(hidden.pooler_output), dim=-1).cpu()


def load_towers(model: str, device: torch.device) -> HubTowers:
    """The towers of a folder that `ClapModel` wrote, or of a hub id, with `@revision` if wanted.

    Raises:
        ValueError: there is no such checkpoint, it lacks weights or has feature fusion, or transformers is missing.
    """
    from transformers import ClapModel, ClapProcessor

    source = str(folder_of(model))
    try:
        processor: Any = ClapProcessor.from_pretrained(source, local_files_only=True)
        loaded: Any = ClapModel.from_pretrained(
            source, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"model: {model!r} cannot be loaded as a CLAP checkpoint of transformers: {error}") from error
    network, found = loaded
    missing = sorted(found["missing_keys"])
    if missing:
        raise ValueError(f"model: {model!r}: {missing[0]!r} is missing from its weights; it is no CLAP checkpoint")
    if network.config.audio_config.enable_fusion:
        raise ValueError(f"model: {model!r} has feature fusion, which is not supported; take an unfused checkpoint")
    features = processor.feature_extractor
    if (features.sampling_rate, features.nb_max_samples) != (SAMPLE_RATE, SPAN):
        heard = f"{features.nb_max_samples} samples at {features.sampling_rate} Hz"
        raise ValueError(f"model: {model!r} hears {heard}; {SPAN} at {SAMPLE_RATE} Hz are needed")
    return HubTowers(network.to(device).eval(), processor)


def folder_of(model: str) -> Path:
    """A checkpoint's folder. Pickled weights, read by transformers as tensors alone, come where it has no others."""
    try:
        folder = located(model, FILES)
        return folder if any(folder.glob("*.safetensors")) else located(model, (*FILES, PICKLED))
    except ValueError as error:
        raise ValueError(f"model: {error}") from None
