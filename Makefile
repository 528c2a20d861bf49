# The commands of this repository.  Each sets up what it needs (scripts/setup.sh; quick when done).
PYTHON := .venv/bin/python

.PHONY: setup demo test fuzz soak leaks docs lint types bench clean

setup:
	@bash scripts/setup.sh

demo: setup
	@.venv/bin/noria demo

test: setup
	@$(PYTHON) -m pytest -n 2 --dist loadfile -q $(PYTEST_ARGS)

# Thousands of random cases against MariaDB (Debian's mariadb-server): about half a second each.
FUZZ_CASES ?= 4000
fuzz: setup
	@NORIA_FUZZ_CASES=$(FUZZ_CASES) NORIA_FUZZ_SEED=$${NORIA_FUZZ_SEED:-random} NORIA_FUZZ_FAILURES=10 \
		$(PYTHON) -m pytest -q -s --tb=short tests/differential

# A night's length of the random engine tests, of other seeds each night (printed).
SOAK_SEEDS ?= 100000
soak: setup
	@first=$${NORIA_ENGINE_FIRST:-$$(date +%s)}; echo "NORIA_ENGINE_FIRST=$$first"; \
		NORIA_ENGINE_FIRST=$$first NORIA_ENGINE_SEEDS=$(SOAK_SEEDS) \
		$(PYTHON) -m pytest -q --timeout=0 -n 2 tests/dataflow/test_engine_random.py

# 100,000 shapes of SELECT, 1,000 views, 2,000 connections: what every process holds, part by part.  Hours on two cores.
LEAKS ?= --selects 100000 --cycles 1000 --connections 2000 --parts 20
leaks: setup
	@PYTHONPATH=src:tests $(PYTHON) tests/soak/soak.py $(LEAKS)

# docs/sql.md and docs/reference.md, written from the program; a test fails while they are stale.
docs: setup
	@$(PYTHON) scripts/docs.py

lint: setup
	@$(PYTHON) -m ruff check src tests bench scripts

types: setup
	@$(PYTHON) -m mypy

# Every figure of bench/RESULTS.md, about ten minutes.
bench: setup
	@for b in bench/*.py; do echo "== $$b"; $(PYTHON) $$b || exit 1; done

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
