# Two commands do everything on a fresh machine: `make tour` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Some of scikit-learn's own checks skip in silence unless scipy dispatches arrays.
export SCIPY_ARRAY_API = 1

.PHONY: help tour test check soak bench format lint types setup clean

help:            ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(STAMP)  ## virtual environment with everything the tests need

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $(STAMP)

tour: setup      ## walk the notes' story; figures and a page in ./tour
	$(BIN)/regard tour --out tour --force

test: setup      ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadgroup

soak: setup      ## the suite with full counts of its long tests
	REGARD_SOAK=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

format: setup    ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup      ## format and lint, reading only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup     ## static types
	$(BIN)/mypy

check: lint types test  ## all that must hold before a change lands (layering and examples are tests)

bench: setup     ## speed side by side with peers (installed apart, in .venv-bench)
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . -r benchmarks/peers.txt
	.venv-bench/bin/python benchmarks/pooling.py

clean:           ## remove what the targets made
	rm -rf $(VENV) .venv-bench tour .pytest_cache .mypy_cache .ruff_cache .hypothesis
