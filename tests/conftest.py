"""What all tests may use.  `spark`: one small session for the whole run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests are busy: time says nothing about our code.  A failure prints how to repeat it.  In CI the
# examples are the same every time; everywhere else they are new ones.
settings.register_profile(
    "noria", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.load_profile("noria")


WORKERS = int(os.environ.get("NORIA_WORKERS", "1"))  # of databases that tests open in their own process


@pytest.fixture(autouse=WORKERS > 1)
def several_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases of this process have WORKERS workers, whatever a test thinks."""
    import noria.client
    from noria.client.embedded import EmbeddedTransport

    monkeypatch.setattr(EmbeddedTransport.__init__, "__defaults__", (None, WORKERS))
    monkeypatch.setattr(noria.client.open, "__defaults__", (None, WORKERS))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """local[2], loopback only, no UI, UTC, as quiet as Spark gets."""
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_HOSTNAME="localhost", PYSPARK_PYTHON=sys.executable,
                      PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]").appName("noria-tests")
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR").config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC").config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
