# The commands of this repository.  Each sets up what it needs (scripts/setup.sh; quick when done).
PYTHON := .venv/bin/python

.PHONY: setup demo test test-long fuzz boundaries cluster applications schemas django-suite soak simulate workers leaks chaos chaos-transactions fuzz-protocols memory-sweep wheel offline docs lint types bench clean

setup:
	@bash scripts/setup.sh

demo:
	@bash scripts/setup.sh run
	@.venv/bin/noria demo

# All but the tests that are marked `long`.
test: setup
	@$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q -m "not long" --durations=25 $(PYTEST_ARGS)

# The tests that are marked `long`: the same behaviour at more length, in processes, programs and faults.
test-long: setup
	@$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q -m long --durations=25 $(PYTEST_ARGS)

# Thousands of random cases against MariaDB (Debian's mariadb-server): about half a second each.
FUZZ_CASES ?= 4000
fuzz: setup
	@NORIA_FUZZ_CASES=$(FUZZ_CASES) NORIA_FUZZ_SEED=$${NORIA_FUZZ_SEED:-random} NORIA_FUZZ_FAILURES=10 \
		$(PYTHON) -m pytest -q -s --tb=short tests/differential

# Every function with boundary values of its arguments: so many calls for each number of arguments, in views, one-shots
# and Spark; the seed is printed, NORIA_BOUNDARY_SEED repeats one.
BOUNDARY_CALLS ?= 16
boundaries: setup
	@seed=$${NORIA_BOUNDARY_SEED:-$$(date +%s)}; echo "NORIA_BOUNDARY_SEED=$$seed"; \
		NORIA_BOUNDARY_SEED=$$seed NORIA_BOUNDARY_CALLS=$(BOUNDARY_CALLS) NORIA_BOUNDARY_SPARK=100000 \
		$(PYTHON) -m pytest -q --timeout=0 tests/dataflow/engine/test_boundary_values.py tests/spark/lowering/test_boundary_values.py

# On a Spark standalone cluster of several daemons; and the data source on local-cluster, while tasks fail.
cluster: setup
	@NORIA_CLUSTER=1 $(PYTHON) -m pytest -q tests/e2e/cluster/test_cluster.py tests/spark/source/test_source_on_cluster.py

# Debian's WordPress on Noria and on MariaDB: installed, filled, every page compared.
applications: setup
	@PYTHONPATH=src:tests $(PYTHON) -m applications.wordpress

schemas: setup
	@PYTHONPATH=src:tests $(PYTHON) -m applications.schemas

# Django's own test suite on Noria and on MariaDB; DJANGO="queries lookup --show" for some labels, with the errors.
django-suite: setup
	@PYTHONPATH=src:tests $(PYTHON) -m applications.django_suite $(DJANGO)

# Every test that opens databases in its own process, of one worker, of two and of three each; in CI each draws.
IN_PROCESS = $(shell grep -rlE 'noria\.open|LocalServer|LocalServices|control\.databases' tests --include='test_*.py') \
	tests/differential
workers: setup
	@for n in 1 2 3; do echo "== NORIA_WORKERS=$$n"; NORIA_WORKERS=$$n NORIA_FUZZ_CASES=$${NORIA_FUZZ_CASES:-300} \
		$(PYTHON) -m pytest -n 2 --dist loadfile -q $(IN_PROCESS) || exit 1; done

# All numbers of workers, then a night's length of the random engine tests, of other seeds each night (printed).
SOAK_SEEDS ?= 100000
soak: workers
	@first=$${NORIA_ENGINE_FIRST:-$$(date +%s)}; echo "NORIA_ENGINE_FIRST=$$first"; \
		NORIA_ENGINE_FIRST=$$first NORIA_ENGINE_SEEDS=$(SOAK_SEEDS) \
		$(PYTHON) -m pytest -q --timeout=0 -n 2 tests/dataflow/engine/test_engine_random.py
	@NORIA_SHARDED_SEEDS=$${NORIA_SHARDED_SEEDS:-40} $(PYTHON) -m pytest -q --timeout=0 tests/runtime/cluster/test_cluster_link.py

# 100,000 schedules of several workers, of other seeds each time (printed): most of the workers' core alone (3.25 times
# WORKERS_SEEDS), WHOLE_SEEDS of the whole server but Spark.  Hours.
WORKERS_SEEDS ?= 29300
WHOLE_SEEDS ?= 5000
simulate: setup
	@first=$${NORIA_SHARD_FIRST:-$$(date +%s)}; echo "NORIA_SHARD_FIRST=$$first NORIA_WHOLE_FIRST=$$first"; \
		NORIA_SHARD_FIRST=$$first NORIA_SHARD_SEEDS=$(WORKERS_SEEDS) NORIA_WHOLE_FIRST=$$first NORIA_WHOLE_SEEDS=$(WHOLE_SEEDS) \
		$(PYTHON) -m pytest -q --timeout=0 -n 2 tests/dataflow/cluster/test_shards.py tests/simulated/test_whole.py

# A server under random faults until so many of its processes were killed (CHAOS_SECONDS: or at least so long); seeds are
# printed, CHAOS_SEED repeats one; CHAOS_WORKERS and CHAOS_FRONT_ENDS, which it draws, may be given.  docs/explanation/reliability.md says what is promised.
CHAOS_KILLS ?= 1000
chaos: setup
	@CHAOS_KILLS=$(CHAOS_KILLS) CHAOS_SECONDS=$${CHAOS_SECONDS:-0} CHAOS_STORM=$${CHAOS_STORM:-30} \
		$(PYTHON) -m pytest -q -x --tb=short tests/chaos/test_chaos.py

# Transactions under the same faults: histories that a checker judges (tests/histories), and transfers between accounts;
# with one worker and with three, or CHAOS_WORKERS, until so many processes were killed with each.
TRANSACTION_KILLS ?= 200
chaos-transactions: setup
	@CHAOS_KILLS=$(TRANSACTION_KILLS) CHAOS_SECONDS=$${CHAOS_SECONDS:-0} CHAOS_STORM=$${CHAOS_STORM:-10} CHAOS_VERIFY=1 \
		$(PYTHON) -m pytest -q -x --tb=short tests/chaos/test_transactions.py

# So many cases for each protocol: MySQL, the worker's packets, their wire, the readers of shared memory.
PROTOCOL_CASES ?= 1000000
fuzz-protocols: setup
	@FUZZ_MYSQL_CASES=$(PROTOCOL_CASES) FUZZ_WORKER_CASES=$(PROTOCOL_CASES) FUZZ_WIRE_CASES=$(PROTOCOL_CASES) \
		FUZZ_VIEWS_CASES=$(PROTOCOL_CASES) $(PYTHON) -m pytest -q --tb=short tests/chaos/fuzz/test_fuzz_*.py

# Ten times what the memory limit holds, read and written for ten minutes: docs/internals/memory-sweep.svg.
memory-sweep: setup
	@$(PYTHON) tests/chaos/memory_sweep.py

# 100,000 shapes of SELECT, 1,000 views, 2,000 connections: what every process holds, part by part.  Hours on two cores.
LEAKS ?= --selects 100000 --cycles 1000 --connections 2000 --parts 20
leaks: setup
	@PYTHONPATH=src:tests $(PYTHON) tests/soak/soak.py $(LEAKS)

# dist/noria_spark-….whl with compiled kernels: who installs it waits for no compiler.  It is built from a copy (BUILT).
DIST ?= dist
BUILT ?= build/wheel
wheel: setup
	@rm -rf $(BUILT) $(DIST) && mkdir -p $(BUILT) && cp -r pyproject.toml setup.py README.md LICENSE src $(BUILT)/
	@find $(BUILT) -name __pycache__ -prune -exec rm -rf {} +
	@$(PYTHON) -m noria.kernels.making $(BUILT)/src/noria/kernels/compiled
	@$(PYTHON) -m pip wheel --disable-pip-version-check --quiet --no-deps -w $(DIST) $(abspath $(BUILT))
	@rm -rf $(BUILT); ls -l $(DIST)/*.whl

# In a network namespace without a network, a user who is not root installs the wheel and all that it depends on from a
# local directory, and plays the demo: a few minutes and 2 GB in /tmp.  CI leaves out the installation of dependencies.
offline: setup
	@NORIA_OFFLINE=1 $(PYTHON) -m pytest -q tests/e2e/clients/test_wheel.py

# The generated pages of docs/reference, written from the program; a test fails while they are stale.
docs: setup
	@$(PYTHON) scripts/docs.py

lint: setup
	@$(PYTHON) -m ruff check src tests bench scripts examples

types: setup
	@$(PYTHON) -m mypy --num-workers 2

# Every figure of bench/RESULTS.md, about ten minutes.
bench: setup
	@for b in bench/*.py; do echo "== $$b"; $(PYTHON) $$b || exit 1; done

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
