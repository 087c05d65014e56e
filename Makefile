# `make demo` and `make test` do all the set-up; nothing but Python 3.11 or newer has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest

.PHONY: demo test test-distributed check check-docs mutants oldest dist bench import-time defaults methods trainability zoo \
	clean help

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
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

test-distributed: $(VENV)/.ready  ## Run the tests that start up to four processes
	$(BIN)/python -m pytest -m distributed

check: $(VENV)/.ready  ## Lint, format, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-docs: $(VENV)/.ready  ## Documents: tables are those of the records, examples run, links exist
	$(BIN)/python -m tools.check_docs $(ARGS)

mutants: $(VENV)/.ready  ## Do the tests notice mistakes? `make mutants ARGS="--count 20 --only gradients"` for a part
	$(BIN)/python -m tools.mutants $(ARGS)

# Another index may have a torch without CUDA (PIP_EXTRA_INDEX_URL): 6 GB less.
$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt \
		--editable ".[experiments,lightning,transformers,pandas]" playwright pytest pytest-xdist
	touch $@

oldest: $(OLDEST)/.ready  ## Run all tests with the oldest versions that pyproject.toml allows
	$(OLDEST)/bin/python -m pytest --numprocesses 2 $(ARGS)

dist: $(VENV)/.ready  ## Build a wheel and an sdist in dist/, and try the wheel in an empty environment
	$(BIN)/python -m tools.dist $(ARGS)

defaults: $(VENV)/.ready  ## The evidence behind the defaults of NIO(), for docs/defaults.md
	$(BIN)/python benchmarks/defaults.py

bench: $(VENV)/.ready  ## What a step costs, for docs/performance.md; `make bench ARGS=--quick` for a part
	$(BIN)/python -m benchmarks.bench $(ARGS)

import-time: $(VENV)/.ready  ## What `import neuroinit` adds to `import torch`, in milliseconds
	$(BIN)/python -m benchmarks.import_time

methods: $(VENV)/.ready  ## Every initialization on the demo's networks, for docs/methods.md; resumable
	$(BIN)/python benchmarks/methods.py

trainability: $(VENV)/.ready  ## Which starts train, for docs/trainability.md; `make trainability ARGS=--quick` for a part
	$(BIN)/python -m benchmarks.trainability $(ARGS)

zoo: $(VENV)/.ready  ## Two steps on families of timm and torchvision, for docs/zoo.md; resumable
	$(BIN)/python benchmarks/zoo.py

clean:  ## Remove the environment and caches
	rm -rf $(VENV) $(OLDEST) .mutants dist .pytest_cache .mypy_cache .ruff_cache
