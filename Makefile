# `make help` lists the targets. Every target that needs tools builds .venv from requirements.lock
# first; once that is done, nothing here needs a network.

# The newest Python that the tests have passed with, else a newer one. A name on PATH may be a stub
# that cannot run, so each is tried.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3 python; do \
    "$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && echo "$$name" && break; done)
WORKERS ?= 2
SOAK_EXAMPLES ?= 20000
SOAK_SECONDS ?= 600
REPRODUCED ?= docs/reproduced
LOCK_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
RESULTS := benchmarks/results
# Scripts with a main of their own; ONLY=name runs one of them and keeps the others' results.
BENCHMARKS = $(if $(ONLY),$(ONLY:%=benchmarks/%.py),$(filter-out benchmarks/harness.py \
	benchmarks/write_docs.py,$(shell grep -l '__main__' benchmarks/*.py 2>/dev/null)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install run test test-all conformance lint format soak bench reproduce docs lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Build .venv from the lock, with the package installed for editing

run: $(INSTALLED) ## Count words on embedded Spark for half a minute; the plan tunes itself
	@$(BIN)/python examples/word_count_live.py

test: $(INSTALLED) ## Run the tests, warnings as errors
	$(PYTEST)

test-all: $(INSTALLED) ## Run the rest: the tutorial, kills, the browser, all cases of what `test` samples
	ANABRANCH_TESTS=all $(PYTEST) -m "thorough or sampled or hypothesis"

conformance: $(INSTALLED) ## Run every application on every engine under every kind of plan
	ANABRANCH_TESTS=all $(PYTEST) -m "" tests/conformance

lint: $(INSTALLED) ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## Apply formatting and the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(INSTALLED) ## Run the laws on many random examples (SOAK_EXAMPLES), kill drivers, watch memory (SOAK_SECONDS)
	ANABRANCH_SOAK=$(SOAK_EXAMPLES) $(PYTEST) -m "" --timeout=0 \
	    tests/law tests/engines/local/test_law.py tests/engines/local/test_exactly_once.py \
	    tests/engines/spark/test_law.py tests/engines/spark/test_kills.py
	ANABRANCH_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -m soak -n 0 -s tests/engines/test_long_runs.py

bench: $(INSTALLED) ## Run the benchmarks and rewrite docs/benchmarks.md (ONLY=name for one)
	@mkdir -p $(RESULTS); failed=; \
	for script in $(BENCHMARKS); do \
	    name=$$(basename $$script .py); result=$(RESULTS)/$$name; status=ok; \
	    echo "$$script --json"; \
	    $(BIN)/python $$script --json > $$result.partial || status=; \
	    $(BIN)/python -m json.tool --no-ensure-ascii $$result.partial $$result.json || status=; \
	    rm -f $$result.partial; \
	    test "$$status" || failed="$$failed $$name"; \
	done; \
	$(BIN)/python benchmarks/write_docs.py $(RESULTS) docs/benchmarks.md || exit 1; \
	if test -n "$$failed"; then echo "benchmarks that failed:$$failed" >&2; exit 1; fi

reproduce: $(INSTALLED) ## Hold a paper's claims against this machine (PAPER=joker) and rewrite its page in docs/reproduced
	$(BIN)/anabranch reproduce $(PAPER) --out $(REPRODUCED)

docs: $(INSTALLED) ## Build the documentation site into build/site, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: $(LOCKED) ## Resolve requirements.lock again (LOCK_FLAGS=--upgrade for newer versions)
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --custom-compile-command 'make lock' --quiet $(LOCK_FLAGS) --output-file requirements.lock

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src papers tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The environment is made anew whenever the lock changes, so it never holds leftovers.
$(LOCKED): requirements.lock
	@test -n "$(PYTHON)" || { echo "no Python from 3.11 on was found: PYTHON=path/to/python names one" >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	    --requirement requirements.lock
	@touch $@

$(INSTALLED): $(LOCKED) pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
	    --no-build-isolation --editable .
	@touch $@
