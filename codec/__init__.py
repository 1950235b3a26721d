"""Codecs: what turns frames into sound, and what an engine and a scorer must agree on. Knows neither of them."""
