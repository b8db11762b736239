# make lab    use it: JupyterLab on the quickstart
# make demo   the same without a browser, written to demo-out/
# make test   everything that CI checks
# make soak   1,000 runs killed at random moments: minutes
#
# Nothing is done twice: what was built is stamped in .cache/make.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
DONE := .cache/make
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# First of all, and exactly: a range would fetch the newest CUDA build where this one would do.
TORCH := torch==2.13.0

# The first Python that is new enough. Override: make lab PYTHON=/path/to/python
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	if "$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then command -v "$$p"; break; fi; done)

JS_SOURCES := $(shell find js -path js/node_modules -prune -o -type f -print 2>/dev/null)
SOURCES := pyproject.toml hatch_build.py README.md $(JS_SOURCES) \
	$(shell find it2nb -type f -not -path "*/static/*" -not -name "*.pyc")

.PHONY: help lab demo bench bench-server binder test lint types js py soak notebooks screenshots lock clean

help:
	@sed -n 's/^# make/make/p' Makefile

lab: $(DONE)/installed
	$(BIN)/python scripts/lab.py notebooks/01_quickstart.ipynb

demo: $(DONE)/installed
	$(BIN)/python -m scripts.demo notebooks/01_quickstart.ipynb --out demo-out

# ------------------------------------------------------------------------------------ tests

test: lint types js py

lint: $(DONE)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DONE)/dev
	$(BIN)/mypy

js: $(DONE)/npm
	npm --prefix js run --silent check

# The browser tests take the wheel itself, as a user gets it.
py: $(DONE)/installed $(DONE)/dev
	IT2NB_WHEEL="$$(ls .cache/wheel/*.whl)" $(BIN)/python -m scripts.run_tests $(PYTEST)

# 1,000 runs killed at random moments, 100,000 requests from eight threads, a million steps.
soak: $(DONE)/dev
	IT2NB_SOAK=1 $(BIN)/python -m pytest tests/kill tests/core/test_fuzz.py tests/core/test_flat.py \
		tests/test_main.py \
		tests/panel/test_half_hour.py tests/notebook/test_panel.py

# Executes the notebooks in place, with output that is shown without a kernel.
notebooks: $(DONE)/installed $(DONE)/dev
	for book in notebooks/*.ipynb; do \
		$(BIN)/python -m scripts.demo "$$book" --out .cache/notebooks --hands-off --static; \
		mv ".cache/$$book" "$$book"; done

screenshots: $(DONE)/installed $(DONE)/dev
	$(BIN)/python -m scripts.screenshot docs

# What it costs: one table, some ten minutes on a machine that does nothing else. BENCH="--quick" to
# try it, "--readme" to put the table into the README; bench-server is the server alone.
bench: $(DONE)/installed $(DONE)/dev $(DONE)/bench
	$(BIN)/python -m scripts.bench $(BENCH)

bench-server: $(DONE)/dev
	$(BIN)/python -m scripts.bench.server

# binder/ in a new environment made from its files alone, behind a prefix, in Chromium: minutes.
binder: $(DONE)/dev
	$(BIN)/python -m scripts.binder

# What it is compared with; trackio apart, which wants another huggingface_hub than ours.
$(DONE)/bench: $(DONE)/dev
	$(PIP) --requirement <($(BIN)/python scripts/requirements.py bench)
	$(BIN)/python -m venv .cache/trackio
	.cache/trackio/bin/python -m pip install --quiet --disable-pip-version-check trackio
	@touch $@

# ---------------------------------------------------------------------------------- install

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "it2nb needs Python 3.11 or newer; none found." \
		"Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(DONE)/venv: pyproject.toml constraints.txt | $(BIN)/python
	@mkdir -p $(@D)
	$(PIP) "$(TORCH)"
	$(PIP) --requirement <($(BIN)/python scripts/requirements.py examples workflows) hatchling
	@touch $@

$(DONE)/dev: $(DONE)/venv
	$(PIP) --requirement <($(BIN)/python scripts/requirements.py dev)
	@touch $@

$(DONE)/npm: js/package.json js/package-lock.json
	@command -v npm >/dev/null || { echo "the panel is built with npm, and there is none:" \
		"install Node.js 20 or newer" >&2; exit 1; }
	npm --prefix js ci --no-audit --no-fund --loglevel=error
	@mkdir -p $(@D) && touch $@

# Not editable: an editable install leaves out the files that the Jupyter server serves.
$(DONE)/installed: $(SOURCES) $(DONE)/venv $(DONE)/npm
	rm -rf .cache/wheel
	$(BIN)/hatchling build -t wheel -d "$(CURDIR)/.cache/wheel"
	$(PIP) --no-deps --force-reinstall .cache/wheel/*.whl
	@mkdir -p $(@D) && touch $@

lock: $(DONE)/dev
	sed -n '/^#/p' constraints.txt > .cache/constraints.txt
	$(BIN)/python -m pip freeze --exclude it2nb | sed 's/+cpu$$//' >> .cache/constraints.txt
	mv .cache/constraints.txt constraints.txt

# Everything that git ignores here and that a build made, but not the runs.
clean:
	rm -rf $(VENV) .cache build dist demo-out js/node_modules it2nb/notebook/static
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
