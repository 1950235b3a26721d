"""Figures that no selection has seen, found in the audio of a finished run."""
