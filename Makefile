# Two commands: `make demo` and `make test`. Both make .venv and install what they need, at locked versions.

VENV := .venv
BIN := $(VENV)/bin
# Two processes, a test file to each in turn, as tests/conftest.py orders them: most of a test's time is tracing, which
# uses one core.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
LOCK := constraints.txt
# python3 where it fits, else an older one beside it. A name may exist and not run, so each is tried.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(FITS)' 2>/dev/null && echo $$python && break; done)

.PHONY: demo test test-serving test-browser test-fast lint types format lock clean help

help:
	@echo "make demo       train on the built-in sample, translate, export: 10 to 15 minutes"
	@echo "make test       everything that a release needs: 15 to 35 minutes on 2 cores"
	@echo "make test-serving  the export where servers run it: C runtime, clients, load, fuzz; needs gcc, fetches 1.3 GB"
	@echo "make test-browser  pages in Chromium, TensorBoard, the notebooks: about 10 minutes; says what is missing"
	@echo "make test-fast  lint and the quick tests: for the inner loop"
	@echo "make format     let ruff format the code"
	@echo "make lock       resolve all versions anew into $(LOCK)"

demo: $(VENV)/.runtime
	$(BIN)/python examples/train_pt_en.py

test: lint types
	$(PYTEST)

# TensorFlow's C library of this version and of a server's, and a stand-in that speaks the server's protocol.
test-serving: $(VENV)/.serving
	$(BIN)/python tools/serving_wheels.py 2.20 >/dev/null
	$(BIN)/python -m pytest tests/serving_runtime

# Pages and TensorBoard in a headless Chromium, and the notebooks from top to bottom.
test-browser: $(VENV)/.browser
	$(BIN)/python -m pytest tests/browser

test-fast: lint
	$(PYTEST) -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(VENV)/.dev
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url \
		--extra dev --extra tfds --extra serving --extra notebooks --extra browser pyproject.toml -o $(LOCK)

clean:
	rm -rf $(VENV) .venv-serving-* .pytest_cache .mypy_cache .ruff_cache runs notebooks/runs

$(VENV)/.runtime: pyproject.toml $(LOCK) | $(BIN)/python
	PIP_CONSTRAINT=$(LOCK) $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(LOCK) | $(BIN)/python
	PIP_CONSTRAINT=$(LOCK) $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.serving: $(VENV)/.dev
	PIP_CONSTRAINT=$(LOCK) $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,serving]'
	@touch $@

$(VENV)/.browser: $(VENV)/.dev
	PIP_CONSTRAINT=$(LOCK) $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[dev,serving,notebooks,browser]'
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
		echo "keras_transformer needs Python 3.11, 3.12 or 3.13 and finds none: install one, for example python3.13" >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt install python3-venv)" >&2; \
		exit 1; }
