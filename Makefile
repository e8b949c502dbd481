# Everything runs in .venv, made from the exact versions and files (by SHA-256) in requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
# two processes, each with a Spark session that all its tests share
PARALLEL := -n 2 --dist worksteal
SOURCES := src lab conftest.py tests examples docs/*.py
# if it is set, every process that a test starts compiles every module again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo check test test-all test-conformance lint format bench docs lock clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/ready  ## Create .venv with the locked versions, the library and the laboratory

.venv/ready: requirements.lock pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "equipoise needs Python 3.11 or newer; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable lab
	@touch $@

.venv/spark.jsa: .venv/ready tests/class_archive.py
	@$(BIN)/python tests/class_archive.py $@

demo: setup  ## Run a skewed stream on Spark, by plain hash and balanced, in about a minute; DASHBOARD=1 opens the live page
	@$(BIN)/equipoise-lab demo $(if $(filter-out 0,$(DASHBOARD)),--dashboard)

check: setup  # both at a time
	@$(MAKE) --no-print-directory -j2 lint docs

test: check .venv/spark.jsa  ## Check style, types and documentation, then run the tests
	$(BIN)/pytest -m "not long and not conformance" $(PARALLEL)

test-all: check .venv/spark.jsa  ## The same with the long tests and those of conformance
	$(BIN)/pytest $(PARALLEL)

test-conformance: setup  ## Run the same processors through Spark and equipoise, on Classic and Connect, and compare
	$(BIN)/pytest -m conformance lab/tests/conformance

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock:  ## Renew requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --upgrade \
	    --output-file requirements.lock

clean:  ## Remove .venv and everything generated
	rm -rf .venv site dist demo reproduced .mypy_cache .pytest_cache .ruff_cache .hypothesis
