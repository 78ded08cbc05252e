# Three commands do everything on a fresh machine: `make tour`, `make play` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Many processes import the same modules: where this is set, each of them compiles the sources anew.
export PYTHONDONTWRITEBYTECODE =
# Some of scikit-learn's own checks skip in silence unless scipy dispatches arrays.
export SCIPY_ARRAY_API = 1
# Processes that share the tests.
WORKERS ?= 2

.PHONY: help setup tour play browser test soak gpu-test docs wheel format lint types check bench clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

# What the command needs, and on top of it what the tests need.
$(VENV)/command: $(VENV)/made pyproject.toml constraints.txt
	$(PIP) -c constraints.txt -e '.[cli,nn]'
	touch $@

$(VENV)/tests: $(VENV)/command
	$(PIP) -c constraints.txt -e '.[test]'
	touch $@

$(VENV)/page: $(VENV)/command
	$(PIP) -c constraints.txt -e '.[play,nn]'
	touch $@

$(VENV)/docs: $(VENV)/command
	$(PIP) -c constraints.txt -e '.[docs]'
	touch $@

setup: $(VENV)/tests  ## virtual environment with everything the tests need

tour: $(VENV)/command  ## walk the notes' story; figures and a page in ./tour
	$(BIN)/regard tour --out tour --force

play: $(VENV)/page  ## drag the points yourself: a page on this machine
	$(BIN)/regard play

# Debian's chromium for the tests of the page, where apt may install it; without it those tests skip, and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive timeout 600 \
	sh -c 'apt-get update && apt-get install -y chromium' >/dev/null 2>&1; } || \
	echo "no chromium, and apt-get cannot install it: the page will not be tested in a browser"

test: setup browser  ## the whole test suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

soak: setup browser  ## the suite with full counts of its long tests, in random order
	REGARD_SOAK=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -p randomly -o faulthandler_timeout=3600

# In the Python that has torch with CUDA; nothing is installed. COMMIT names what is tested where there is no git.
gpu-test:        ## everything that needs CUDA, on a machine with a GPU: after any change to programs or tensors
	PYTHONPATH=src:tests $(PYTHON) -m gpu.run --commit "$(COMMIT)"

# Errors and warnings end it. Nothing is fetched: the second command checks links, and that pages load only their own files.
docs: $(VENV)/docs  ## the site with API reference and gallery, in docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs docs/_build/html
	$(BIN)/python tools/check_links.py docs/_build/html

wheel: $(VENV)/made  ## build the wheel and try it in empty environments, one for each Python from 3.11 on that is here
	$(BIN)/python tools/try_wheel.py

format: setup    ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup      ## format and lint, reading only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup     ## static types
	$(BIN)/mypy

check: lint types test  ## all that must hold before a change lands (layering and examples are tests)

bench:           ## speed and memory side by side with peers (installed apart, in .venv-bench)
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plot]' -r benchmarks/peers.txt
	.venv-bench/bin/python benchmarks/pooling.py
	.venv-bench/bin/python benchmarks/memory.py
	.venv-bench/bin/python benchmarks/import_time.py
	.venv-bench/bin/python benchmarks/bandwidth.py
	.venv-bench/bin/python benchmarks/speed.py
	.venv-bench/bin/python benchmarks/fit.py --limit 60

clean:           ## remove what the targets made
	rm -rf $(VENV) .venv-bench tour .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	docs/_build docs/api docs/auto_gallery docs/notes_as_notebooks docs/performance docs/changes.md docs/contributing.md
