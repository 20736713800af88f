# All set-up happens here: a first `make demo` or `make test` needs Python 3.11 or newer, make and a package index.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
PYTHON ?=
VECTORS ?= tests/vectors/conformance
DEMO_ARGS ?=
PUBLISH_ARGS ?=
BENCH_ARGS ?=
MUTANTS_ARGS ?= --jobs 2
PYTEST_ARGS ?= -n auto --dist loadgroup

# Python 3.11 to 3.13 are what constraints.txt was resolved for; anything newer is a second choice.
CANDIDATES := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python
PROTO_VENV := build/proto-venv
PROTO_DIRS := src/fairway/wire/proto src/fairway/libp2p/proto

# The tests start some hundred processes of their own: without compiled files each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
DOCS_READY := $(VENV)/.docs-ready
RLN_READY := $(VENV)/.rln-ready
RLN_SOURCES := $(wildcard rln/*.toml rln/README.md rln/src/*.rs)

.PHONY: help setup rln demo test test-all coverage docs notebook wheel publish mutants lint types format conformance bench proto clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv with everything in it (the other targets do this by themselves)

rln: $(RLN_READY) ## Build fairway-rln, which proves and verifies, with Rust's cargo, and put it into .venv

demo: $(DEMO_READY) ## A lossy group channel, live, then the same protocol over its archive (DEMO_ARGS=...)
	$(BIN)/fairway demo $(DEMO_ARGS)

test: $(READY) ## Run what tells within minutes whether everything works (PYTEST_ARGS=...)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-all: $(READY) ## Run all tests, the long ones too (PYTEST_ARGS=...)
	$(BIN)/python -m pytest --full $(PYTEST_ARGS)

mutants: $(READY) ## Plant bugs and see whether worlds or tests find them (MUTANTS_ARGS=...)
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

lint: $(READY) ## Check style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types
	$(BIN)/mypy

format: $(READY) ## Lay the sources out and repair what can be repaired
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(READY) ## Replay known answers of other implementations (VECTORS=path)
	$(BIN)/python -m tests.conformance $(VECTORS)

coverage: $(READY) ## Run the tests and say which lines none of them reached (PYTEST_ARGS=...)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest $(PYTEST_ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

docs: $(DOCS_READY) ## Build the site in build/site; a warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site
	@echo "build/site/index.html"

notebook: $(READY) ## Execute docs/notebook.ipynb anew, and keep its outputs in it
	$(BIN)/python docs/execute_notebook.py

wheel: $(READY) ## Build dist/fairway-VERSION-py3-none-any.whl
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --build-constraint constraints.txt --wheel-dir dist .

publish: $(READY) ## Build wheel and sources, use the wheel in empty environments, and publish both (PUBLISH_ARGS=...)
	rm -rf dist
	$(BIN)/uv build --quiet --build-constraint constraints.txt --out-dir dist
	.ci/core_only dist
	$(BIN)/uv publish $(PUBLISH_ARGS) dist/*

bench: $(READY) ## Measure (BENCH_ARGS=...)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

$(BIN)/python:
	@found=; \
	for below in 14 99; do for candidate in $(CANDIDATES); do \
	  if [ -z "$$found" ] && "$$candidate" -c "import ensurepip, sys, venv; \
	sys.exit(not (3, 11) <= sys.version_info < (3, $$below))" >/dev/null 2>&1; then found=$$candidate; fi; \
	done; done; \
	if [ -z "$$found" ]; then \
	  echo "fairway needs Python 3.11 or newer with its venv module; none of these is one: $(CANDIDATES)." >&2; \
	  echo "Install Python (on Debian also python3-venv), or name one: make PYTHON=/path/to/python3 ..." >&2; \
	  exit 1; \
	fi; \
	echo "$$found -m venv $(VENV)"; "$$found" -m venv $(VENV)

$(DEMO_READY): EXTRAS := cli,node,spark
$(READY): EXTRAS := cli,mcp,node,otel,spark,hdfs,postgresql,connect,dev,bench
$(DOCS_READY): EXTRAS := docs
$(DOCS_READY): $(READY)

# pip takes over where only pip is configured for the index of this machine.
FROM_HERE = --constraint constraints.txt --build-constraint constraints.txt --editable '.[$(EXTRAS)]'
$(DEMO_READY) $(READY) $(DOCS_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip uv
	$(BIN)/uv pip install --python $(BIN)/python $(FROM_HERE) || $(BIN)/python -m pip install $(FROM_HERE)
	@touch $@

# Its dependencies take two minutes of a core or two once; they stay in build/rln.
$(RLN_READY): $(RLN_SOURCES) | $(READY)
	@command -v cargo >/dev/null || { \
	  echo "fairway-rln is compiled by Rust's cargo, which is not here: install Rust (https://rustup.rs) first." >&2; exit 1; }
	$(BIN)/python rln/write_lock.py rln
	CARGO_TARGET_DIR=$(CURDIR)/build/rln $(BIN)/python -m pip install --quiet --force-reinstall --no-deps \
	  --build-constraint constraints.txt ./rln
	@touch $@

# The generator is pinned to a version whose code runs on every protobuf runtime from 4.25; it has wheels up to Python 3.12.
proto: $(BIN)/python ## Generate the protobuf code anew from its schemas
	$(BIN)/python -m venv $(PROTO_VENV)
	$(PROTO_VENV)/bin/python -m pip install --quiet grpcio-tools==1.62.3 'setuptools<81'
	cd src && ../$(PROTO_VENV)/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  $(patsubst src/%,%,$(wildcard $(addsuffix /*.proto,$(PROTO_DIRS))))

clean: ## Remove .venv and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -not -path './.git/*' -exec rm -rf {} +
