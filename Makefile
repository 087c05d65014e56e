# `make demo` and `make test` do all the set-up; nothing but Python 3.11 or newer has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest

.PHONY: demo test test-distributed check check-docs evidence docs faults mutants oldest dist bench import-time defaults methods \
	trainability agreement medium theory zoo clean help

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

evidence: $(VENV)/.ready  ## Write the tables and figures of docs/evidence from the records
	$(BIN)/python -m tools.write_evidence

check-docs: $(VENV)/.ready  ## Documents: tables and figures are those of the records, examples run, links exist
	$(BIN)/python -m tools.check_docs $(ARGS)

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	touch $@

docs: $(VENV)/.docs  ## Build the site in docs/_build/html and run its tutorials; a warning fails
	$(BIN)/python -m sphinx -q -W -n --keep-going docs docs/_build/html $(ARGS)

faults: $(VENV)/.ready  ## Inject faults and count how they end, for docs/evidence/faults.md; `make faults ARGS=--quick` for a part
	$(BIN)/python -m benchmarks.faults $(ARGS)

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

dist: $(VENV)/.ready  ## Build a wheel and an sdist in dist/, and try both in an empty environment
	$(BIN)/python -m tools.dist $(ARGS)

defaults: $(VENV)/.ready  ## The evidence behind the defaults of NIO(), for docs/evidence/defaults.md
	$(BIN)/python -m benchmarks.defaults.first_default

bench: $(VENV)/.ready  ## What a step costs, for docs/evidence/performance.md; `make bench ARGS=--quick` for a part
	$(BIN)/python -m benchmarks.cost.bench $(ARGS)

import-time: $(VENV)/.ready  ## What `import neuroinit` adds to `import torch`, in milliseconds
	$(BIN)/python -m benchmarks.cost.import_time

methods: $(VENV)/.ready  ## Every initialization on the demo's networks, for docs/evidence/methods.md; resumable
	$(BIN)/python -m benchmarks.methods

trainability: $(VENV)/.ready  ## Which starts train, for docs/evidence/trainability.md; `make trainability ARGS=--quick` for a part
	$(BIN)/python -m benchmarks.trainability $(ARGS)

agreement: $(VENV)/.ready  ## What measures of agreement say of networks, for docs/evidence/agreement.md; `TEXT=file`
	$(BIN)/python -m benchmarks.agreement.measure_table run $(TEXT)
	$(BIN)/python -m benchmarks.agreement.ascent run $(TEXT)

medium: $(VENV)/.ready  ## Every start trained to the end on small CIFAR-10, `make medium ARGS="--data folder:PATH"`; resumable
	$(BIN)/python -m benchmarks.medium $(ARGS)

theory: $(VENV)/.ready  ## The paper's theorems tried on small networks; resumable
	$(BIN)/python -m benchmarks.theory $(ARGS)

zoo: $(VENV)/.ready  ## Two steps on families of timm and torchvision, for docs/evidence/zoo.md; resumable
	$(BIN)/python -m benchmarks.zoo

clean:  ## Remove the environment and caches
	rm -rf $(VENV) $(OLDEST) .mutants dist docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache
