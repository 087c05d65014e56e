# `make demo` and `make test` do all the set-up; nothing but Python 3.11 or newer has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-distributed check bench defaults methods trainability zoo clean help

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

# torch comes first and pinned: an unpinned torch pulls gigabytes of CUDA onto machines without it.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(VENV)/.ready  ## Rescue two deep networks without normalization, in about a minute
	$(BIN)/neuroinit demo

test: $(VENV)/.ready  ## Run all tests
	$(BIN)/python -m pytest --numprocesses 2

test-distributed: $(VENV)/.ready  ## Run the tests that start up to four processes
	$(BIN)/python -m pytest -m distributed

check: $(VENV)/.ready  ## Lint, format, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

defaults: $(VENV)/.ready  ## The evidence behind the defaults of NIO(), for docs/defaults.md
	$(BIN)/python benchmarks/defaults.py

bench: $(VENV)/.ready  ## What a step costs, for docs/performance.md; `make bench ARGS=--quick` for a part
	$(BIN)/python -m benchmarks.bench $(ARGS)

methods: $(VENV)/.ready  ## Every initialization on the demo's networks, for docs/methods.md; resumable
	$(BIN)/python benchmarks/methods.py

trainability: $(VENV)/.ready  ## Which starts train, for docs/trainability.md; `make trainability ARGS=--quick` for a part
	$(BIN)/python -m benchmarks.trainability $(ARGS)

zoo: $(VENV)/.ready  ## Two steps on families of timm and torchvision, for docs/zoo.md; resumable
	$(BIN)/python benchmarks/zoo.py

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
