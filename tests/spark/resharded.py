"""Reshards a small data directory in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from noria.control.processes.leases import Claim
from noria.spark.jobs.resharding import Resharding


def to(path: Path, workers: int, spark: Callable[[], Any] | None = None, again: bool = False) -> str:
    """Reshards the stopped server's directory to so many workers, by Spark if there is much."""
    claim = Claim(path)
    try:
        return Resharding(path, workers, claim.next_epoch(), lambda *step: None, spark or _none, again).run()
    finally:
        claim.release()


def _none() -> SparkSession:
    raise AssertionError("little needs no Spark")
