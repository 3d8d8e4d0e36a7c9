# Every target sets up what it needs by itself: `make demo` and `make test` work in a fresh clone.

VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
BENCH ?= speed
speed_ARGS := build/demo/SmolLM2-135M-Instruct.Q4_1.gguf
BENCH_ARGS ?= $($(BENCH)_ARGS)
PYTEST_ARGS ?=
export VENV
export HF_HUB_OFFLINE = 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint bench docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

setup: $(READY)  ## make .venv with pinned packages and the files of two small models

$(READY): constraints.txt setup.cfg pyproject.toml .ci/setup
	@.ci/setup
	@touch $@

demo: $(READY)  ## carve SmolLM2-135M and all-MiniLM-L6-v2, and migrate them to llvm and WebGPU (5 to 15 minutes)
	@$(BIN)/python examples/demo.py

test: lint  ## ruff, mypy, and every test that is not slow (at most 15 minutes on 2 cores)
	$(BIN)/pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(READY)  ## the slow tests
	$(BIN)/pytest -m slow $(PYTEST_ARGS)

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@.ci/typecheck

bench: $(READY)  ## benchmarks/speed.py; another one with BENCH=name BENCH_ARGS="..."
	@$(BIN)/python examples/demo.py --models
	$(BIN)/python benchmarks/$(BENCH).py $(BENCH_ARGS)

docs: $(READY)  ## write docs/cli.md anew from the commands' --help
	$(BIN)/python docs/generate_cli.py

clean:  ## remove what the targets made, but not .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
