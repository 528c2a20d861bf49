"""Spark jobs of numbered tasks, and the errors of tasks as they were raised there."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from noria.spark.loading.files import BadFile
from noria.spark.loading.tasks import LoadRefused


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Each number as a task of its own."""
    return spark.range(0, count, 1, max(count, 1))


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows, with the exception of a task as it was raised there."""
    try:
        return [r.asDict() for r in rows.collect()]
    except PythonException as e:
        raise _told_by_task(e) from e


def _told_by_task(e: PythonException) -> Exception:
    """BadFile and LoadRefused of a task, from the traceback's last line."""
    last = next((x for x in reversed(str(e).strip().splitlines()) if "BadFile: " in x or "LoadRefused: " in x), "")
    kind, _, message = last.partition(": ")
    if not message:
        return Exception(str(e))
    return BadFile(message) if kind.endswith("BadFile") else LoadRefused(message)
