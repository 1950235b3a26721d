"""The listener: a small causal phoneme recogniser that scores speech against its text while it is being spoken."""
