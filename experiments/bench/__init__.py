"""Benchmarks: what things take on this machine, as tables; they are shown elsewhere, and judge nothing."""
