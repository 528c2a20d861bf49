"""What all tests may use.  `spark`: one small session for the whole run."""

from __future__ import annotations

import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import workers
from noria.kernels import place, signatures
from seeds import cases

# Machines that run tests are busy: time says nothing about our code.  A failure prints how to repeat it.  In CI the
# examples are fewer and the same every time; everywhere else they are new ones.
settings.register_profile(
    "noria", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")), max_examples=cases(100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.load_profile("noria")

# Every JVM that a test starts: its jobs are short, so most of their time would be the optimising compiler's.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")


# Files go to the two processes of `make test` in this order: a server's first, which compile the kernels, then those
# that take minutes; the many short ones come last, so that neither process is left with a long one alone.
FIRST = ("server", "soak", "chaos", "e2e", "spark", "dataflow", "differential", "simulated", "cli", "runtime")
FEW_SEEDS = 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the items in order.  Of a test that has more than FEW_SEEDS seeds, two thirds are marked `long`.  Of an
    end-to-end test with one worker and with three, one of the two is; which one, its name decides."""
    here = config.rootpath / "tests"
    seeds = [(item, seed) for item in items if (seed := _seed(item)) is not None]
    of_test: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for item, seed in seeds:
        of_test[_without_seed(item)].append(seed)
    for item, seed in seeds:
        all_of_it = of_test[_without_seed(item)]
        if len(all_of_it) > FEW_SEEDS and seed - min(all_of_it) > len(all_of_it) // 3:
            item.add_marker(pytest.mark.long)

    twins: dict[tuple[object, ...], dict[int, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.path.relative_to(here).parts[0] == "e2e" and item.get_closest_marker("long") is None:
            for test, workers_of_it in _numbers(item):
                twins[test][workers_of_it] = item
    for test, of_both in twins.items():
        if set(of_both) == {1, 3}:
            of_both[(1, 3)[zlib.crc32(repr(test).encode()) % 2]].add_marker(pytest.mark.long)

    def rank(item: pytest.Item) -> int:
        directory = item.path.relative_to(here).parts[0]
        return FIRST.index(directory) if directory in FIRST else len(FIRST)

    items.sort(key=rank)


def _seed(item: pytest.Item) -> int | None:
    """The value of an item's parameter `seed`, if it is a number."""
    seed = item.callspec.params.get("seed") if hasattr(item, "callspec") else None
    return seed if isinstance(seed, int) else None


def _numbers(item: Any) -> Iterator[tuple[tuple[object, ...], int]]:
    """Each parameter of an item that is 1 or 3, and what names the test without it."""
    params: dict[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    for name, value in params.items():
        if type(value) is int and value in (1, 3) and name != "seed":
            rest = sorted((n, repr(v)) for n, v in params.items() if n != name)
            yield (item.path.name, item.originalname, name, *rest), value


def _without_seed(item: Any) -> tuple[object, ...]:
    """What items of one test have in common that differ in their seed only."""
    return item.path, item.originalname, *(repr(v) for k, v in item.callspec.params.items() if k != "seed")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Kernels that a test called, in whatever process, and that are not listed: a user would wait for the compiler."""
    if hasattr(session.config, "workerinput"):
        return  # one process of several
    if found := signatures.unlisted(place.directory()):
        print("\nkernels that are not in src/noria/kernels/signatures.txt (python scripts/kernels.py "
              f"{place.directory()} adds them):", *found, sep="\n  ")
        session.exitstatus = session.exitstatus or 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with workers.by_default(workers.of(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    with workers.by_default(workers.of(request.node)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.sections.append(("workers of databases in this process", f"NORIA_WORKERS={workers.of(item)}"))
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """local[2], loopback only, no UI, UTC, as quiet as Spark gets."""
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_HOSTNAME="localhost", PYSPARK_PYTHON=sys.executable,
                      PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    from pyspark.sql import SparkSession

    from noria.spark.hosting import archive

    session = (
        SparkSession.builder.master("local[2]").appName("noria-tests")
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR").config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", f"-Duser.timezone=UTC {archive.options()}")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
