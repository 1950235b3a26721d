"""Golden checks of the MOSS-TTS-Nano runtime: all goes through the loader, the cache and the stream that speak.

It does not know the arithmetic: it only drives and compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.nano.checkpoint import load_network
from engine.nano.network import NanoNetwork
from experiments.verify.bundle import Bundle, going
from experiments.verify.compare import Check


@torch.inference_mode()
def verify_moss_nano(folder: Path) -> list[Check]:
    """All checks of a bundle in this layout; raises `ValueError` where its files cannot be read."""
    bundle = Bundle.of(load_network(folder), folder)
    bundle.check_prefill()
    _check_forced(bundle)
    _check_greedy(bundle, "greedy")
    _check_greedy(bundle, "greedy_rep13", penalty=1.3)
    fewer = load_network(folder, spoken_books=int(bundle.golden["greedy_nq"]))
    _check_greedy(Bundle(fewer, bundle.golden, bundle.prompts), "greedy_nq")
    chunk = bundle.sampled(10, temperature=0.8, top_k=9, top_p=0.95, penalty=1.2)
    bundle.golden.check("sampled_frames", chunk.frames)
    bundle.golden.check("sampled_active", going(chunk))
    bundle.check_reorder()
    return bundle.golden.checks


def _check_forced(bundle: Bundle) -> None:
    golden, network = bundle.golden, cast(NanoNetwork, bundle.network)
    active, forced = golden["tf_active"], bundle.check_forced()
    golden.check("tf_text_candidate_logits", forced.stop_logits, active)
    golden.check("tf_text_logits", network.text_lm_head(forced.local[..., 0, :]), active)
    golden.check("tf_rows", bundle.rows(forced.frames, active))


def _check_greedy(bundle: Bundle, name: str, penalty: float = 1.0) -> None:
    """Books that are not spoken are the pad code in the reference's frames, and absent in ours."""
    golden, config = bundle.golden, bundle.network.config
    chunk = bundle.greedy(golden[f"{name}_frames"].shape[1], penalty)
    frames: Tensor = F.pad(chunk.frames, (0, config.books - chunk.frames.shape[2]), value=config.audio_pad)
    golden.check(f"{name}_frames", frames)
    golden.check(f"{name}_active", going(chunk))
