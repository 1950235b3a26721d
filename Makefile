# One command each: `make demo` speaks, `make test` checks everything. Paths stay relative, so any folder name works.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test

help:
	@echo "make demo    speak a sentence with 8 candidates beside 1; audio and a page to compare them go to demo/"
	@echo "make test    style, types, import rules and all tests"
	@echo "make setup   only build .venv, which the other two do by themselves"

setup: $(READY)

# torch first and by exact version: it is what the shipped weights were tested with, and pip must not pick another.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, {sys.version.split()[0]} was found; try make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: setup
	$(BIN)/python -m experiments.demo

test: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict
	$(BIN)/lint-imports
	$(BIN)/python -m pytest
