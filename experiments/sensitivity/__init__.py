"""What each reward head hears: speech that is damaged on purpose, scored beside the same speech undamaged.

`python -m experiments.sensitivity` speaks, damages, scores and writes tables and a plot. It measures whether a head
tells a damage from its absence, not how much the damage would annoy a listener.
"""
