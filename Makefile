# The commands of this repository.  Each sets up what it needs (scripts/setup.sh; quick when done).
PYTHON := .venv/bin/python

.PHONY: setup demo test lint types bench clean

setup:
	@bash scripts/setup.sh

demo: setup
	@.venv/bin/noria demo

test: setup
	@$(PYTHON) -m pytest -n 2 --dist loadfile -q $(PYTEST_ARGS)

lint: setup
	@$(PYTHON) -m ruff check src tests bench

types: setup
	@$(PYTHON) -m mypy

# Every figure of bench/RESULTS.md, about ten minutes.
bench: setup
	@for b in bench/*.py; do echo "== $$b"; $(PYTHON) $$b || exit 1; done

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
