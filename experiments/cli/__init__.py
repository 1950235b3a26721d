"""The `chunksearch` program."""

from experiments.cli.program import main, run

__all__ = ["main", "run"]
