"""Golden checks of the VoiceCLAP runtime: features, encoder, both towers and predictors, by the loaders that score.

What a passing bundle proves: log-mel features, the audio and text networks, and the predictors' arithmetic agree with
open_clip's Whisper CLAP and transformers' BERT, on weights in their format. What it does not prove: that LAION's own
files use these names and this projection, or these mel filters; the bundle stores no filters, and its weights are
random, so it says nothing of the quality of a judgement. The tokenizer is not in it either: its texts are token ids.

The bundle's batch was made with one floor for all its clips, as training has it; scoring gives every clip its own.
"""

from __future__ import annotations

from pathlib import Path

import torch

from experiments.verify.compare import Check, Golden
from scorers.voiceclap.features import fitted, floored, log_power
from scorers.voiceclap.network import VoiceClap
from scorers.voiceclap.predictors import load_predictors
from scorers.voiceclap.weights import load_network


@torch.inference_mode()
def verify_voiceclap(folder: Path) -> list[Check]:
    """All checks of a bundle in this layout; raises `ValueError` where its files cannot be read."""
    network, golden = load_network(folder, torch.device("cpu")), Golden(folder / "golden.safetensors")
    clips = range(len(golden["audio_embed_batch"]))
    for clip in clips:
        _check_clip(network, golden, clip)
    waves = torch.stack([fitted(golden[f"wave.{clip}"], network.samples) for clip in clips])
    power = log_power(waves, network.mel_filters)
    together = network.embed_features(floored(power, power.max()))
    golden.check("audio_embed_batch", together)
    words = network.embed_text(golden["text_ids"], golden["text_mask"])
    golden.check("text_embed", words)
    golden.check("cosine", together @ words.T)
    paths = sorted((folder / "heads").glob("*.pt"))
    if not paths:
        raise ValueError(f"{folder / 'heads'} has no .pt file: this is not a complete bundle of this kind")
    for path in paths:
        predictor = load_predictors([path], network.config.embed_dim)[0]
        golden.check(f"head.{path.stem}", predictor.outputs(golden["audio_embed_batch"]))
    return golden.checks


def _check_clip(network: VoiceClap, golden: Golden, clip: int) -> None:
    """One clip alone, as the scorer hears it."""
    wave = fitted(golden[f"wave.{clip}"], network.samples)[None]
    power = log_power(wave, network.mel_filters)
    features = floored(power, power.amax())
    shown = golden[f"log_mel.{clip}"].shape[-1]
    golden.check(f"log_mel.{clip}", features[0, :, :shown])
    golden.check(f"log_mel_last_frame.{clip}", features[0, :, -1])
    steps = network.audio.encoder(features)[0]
    golden.check(f"encoder_first4.{clip}", steps[:4])
    golden.check(f"encoder_mean.{clip}", steps.mean(0))
    golden.check(f"audio_embed.{clip}", network.embed_audio(wave)[0])
