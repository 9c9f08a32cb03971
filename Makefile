# Every target does all set-up that it needs; `.venv` is made once and again when a pin file changes.
PYTHON ?= python3
VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo dev test check fmt drill lock

help:  ## Say what each target does.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */  make \1|/' | column -t -s '|'

setup:
	@$(PYTHON) requirements/install.py

demo: setup  ## Three nights on the embedded model: serve, log, learn, evaluate, promote.
	@$(VENV)/python -m pipelines demo --nights 3

dev: setup  ## Dagster's webserver and daemon on loopback, over the workspace named by NIGHTSHIFT_WORKSPACE (default: the demo's).
	@$(VENV)/python -m assets.dev

test: setup  ## All tests that fit a laptop, on all cores up to four (the 20 slowest are listed).
	@$(VENV)/python -m pytest -m 'not drill' -n logical --maxprocesses 4

drill: setup  ## Full counts of kills and races, and the demo's controls. Hours.
	@$(VENV)/python -m pytest -m drill --timeout 7200

check: setup  ## Lint, format, types, import fences.
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/basedpyright --level error
	@$(VENV)/lint-imports --no-logo

fmt: setup  ## Mend lint and format where that can be automatic.
	@$(VENV)/ruff check --fix .
	@$(VENV)/ruff format .

lock: setup  ## Resolve requirements/*.in into the pin files with hashes.
	@for name in main dev torch-needs; do \
	  $(VENV)/uv pip compile requirements/$$name.in --no-emit-package torch --generate-hashes --no-header \
	    --python-version 3.11 --output-file requirements/$$name.txt --quiet || exit 1; done
