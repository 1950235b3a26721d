"""Engines turn text into codec frames, one forkable stream for all candidate rows.

This package does not know what a good take sounds like: it never listens, scores or selects.
"""
