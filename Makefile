# Everything runs in .venv, made from the exact versions and files (by SHA-256) in requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
# two processes, each with a Spark session that all its tests share
PARALLEL := -n 2 --dist worksteal
SOURCES := src lab conftest.py tests examples docs/*.py
# where it is set, every process that a test starts would compile every module anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-all lint format bench docs lock clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/ready  ## Make .venv with the locked versions, the library and the laboratory

.venv/ready: requirements.lock pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "equipoise needs Python 3.11 or newer; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable lab
	@touch $@

demo: setup  ## Run the main job: a drifting skewed stream on Spark, by plain hash and balanced; DASHBOARD=1 opens the live page
	$(BIN)/equipoise-lab demo $(if $(filter-out 0,$(DASHBOARD)),--dashboard)

test: setup  ## Run the tests
	$(BIN)/pytest -m "not long" $(PARALLEL)

test-all: setup  ## Run the tests, the long ones too
	$(BIN)/pytest $(PARALLEL)

lint: setup  ## Check style and types
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: setup  ## Format the code
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: setup  ## Run every benchmark in its quick form
	@$(BIN)/equipoise-lab bench all --quick

docs: setup  ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

lock:  ## Renew requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --upgrade \
	    --output-file requirements.lock

clean:  ## Remove .venv and everything generated
	rm -rf .venv site dist demo reproduced .mypy_cache .pytest_cache .ruff_cache .hypothesis
