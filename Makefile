# One command each: `make demo` speaks, `make test` checks everything. Paths stay relative, so any folder name works.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
TESTABLE := .venv/testable
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo test

help:
	@echo "make demo    speak a sentence with 8 candidates beside 1; audio and a page to compare them go to demo/"
	@echo "make test    style, types, import rules and all tests"
	@echo "make setup   only build .venv with all that demo and test need, which they do by themselves"

setup: $(TESTABLE)

# torch first and by exact version: it is what the shipped weights were tested with, and pip must not pick another.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, {sys.version.split()[0]} was found; try make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	touch $(READY)

# Resemblyzer for its weights alone: what it asks for needs a compiler, and is not used.
$(TESTABLE): $(READY)
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps resemblyzer==0.1.4
	touch $(TESTABLE)

demo: $(READY)
	$(BIN)/python -m experiments.demo

test: $(TESTABLE)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict
	$(BIN)/lint-imports
	$(BIN)/python -m pytest
