"""Scorers turn PCM into one number per row. They know nothing of the engine that made it."""

from scorers.registry import load_scorer

__all__ = ["load_scorer"]
