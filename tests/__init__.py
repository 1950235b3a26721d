"""Tests. `tests.contracts` holds the laws that every engine, codec and scorer is run on."""
