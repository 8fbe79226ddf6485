# Every target sets up .venv by itself when it is missing or out of date. Needs Python 3.10+ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DOCS   := $(VENV)/.ready-docs
JOBS   ?= 2
DEMO   ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: help demo examples test lint format bench peers convergence pictures docs wheel clean five-seeds faults

help:        ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY)    ## The paper's first experiment, small: every method, table and figures (CPU, a few minutes)
	$(BIN)/ringfence compare synthetic --out $(DEMO)

examples: $(READY)  ## Run the examples: a training loop, Lightning, a certificate, a constraint of one's own (a minute)
	$(BIN)/python examples/quickstart.py
	$(BIN)/python examples/lightning_loop.py
	$(BIN)/python examples/certificate.py
	$(BIN)/python examples/rate_limit.py
	$(BIN)/python examples/own_constraint.py

test: $(READY)    ## Run the tests, two files at a time (JOBS=N for more)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: $(READY)    ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)   ## Measure the core (ratios, side by side) and write results/core/
	$(BIN)/python benchmarks/core.py --rounds 15 --out results/core

peers: $(READY)   ## Time a constraint step beside the peers' and write results/core/peers.* (CPU, 20 minutes)
	$(BIN)/python benchmarks/peers.py --out results/core
	cp results/core/peers.png docs/pictures/peers.png

convergence: $(READY)  ## Solve problems with known optima by every method and write results/core/convergence.* (a minute)
	$(BIN)/python benchmarks/convergence.py --out results/core

faults: $(READY)  ## Hostile files, kills, full disks, two at once, by the million: results/faults/ and docs (CPU, two hours)
	$(BIN)/python tests/faults all --jobs $(JOBS) --out results/faults

five-seeds: $(READY)  ## The demo with five seeds into results/synthetic/comparison/small/ (CPU, 20 minutes)
	$(BIN)/ringfence compare synthetic --seeds 0 1 2 3 4 --out runs/five-seeds
	$(BIN)/ringfence report runs/five-seeds --out results/synthetic/comparison/small

pictures: $(READY)  ## Draw the figures of README and docs
	$(BIN)/python docs/pictures/draw_barrier.py

docs: $(DOCS) pictures  ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

wheel: $(READY)   ## Build the wheel into dist/
	$(BIN)/pip wheel --no-deps --wheel-dir dist .

clean:            ## Remove everything a target made, the environment included
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "ringfence needs Python 3.10 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(READY): $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@
