"""What is raised about files of a checkpoint: one line that names the file, what is wrong in it, and the cure.

It does not know how files are read.
"""

from __future__ import annotations

DOWNLOAD = "download it again"


class CheckpointError(ValueError):
    """A file of a checkpoint is missing, damaged, or does not belong to the others."""


class ConfigError(CheckpointError):
    """A file of settings is missing or malformed, or a field asks for something that is not implemented."""
