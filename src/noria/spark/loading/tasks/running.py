"""Runs Spark jobs of numbered tasks, and raises a task's BadFile or LoadRefused again in the driver."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from noria.spark.loading.rows.files import BadFile
from noria.spark.loading.tasks.tasks import LoadRefused


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers 0 to count - 1, with one task for each."""
    return spark.range(0, count, 1, max(count, 1))


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """Run the job and return its rows.  Raises the BadFile or LoadRefused of a task."""
    try:
        return [r.asDict() for r in rows.collect()]
    except PythonException as e:
        raise _error_of_task(e) from e


def _error_of_task(e: PythonException) -> Exception:
    """Make the task's BadFile or LoadRefused again from the traceback; any other error becomes a plain Exception."""
    last = next((x for x in reversed(str(e).strip().splitlines()) if "BadFile: " in x or "LoadRefused: " in x), "")
    kind, _, message = last.partition(": ")
    if not message:
        return Exception(str(e))
    return BadFile(message) if kind.endswith("BadFile") else LoadRefused(message)
