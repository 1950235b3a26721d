"""The control of every study: rewards drawn by chance. Knows nothing of the audio, and is no better than nothing.

A search with it spends what a real one spends; whatever a real reward gains has to be gained over this.
"""

from __future__ import annotations

import torch

from scorers.fake import FakeScorer, FakeTaste


def load(device: torch.device) -> FakeScorer:
    """Rewards in [0, 1) that follow from the request's id, the candidate and the step alone."""
    scorer = FakeScorer(FakeTaste(chance=True), device)
    scorer.name = "random"
    return scorer
