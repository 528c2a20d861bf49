"""Writes the raw files that the demo loads, by Spark: stories and users as CSV, votes as Parquet.

It is a job of a batch-only Spark driver of the demo (`control/processes/supervisor.py`), not of the server.  The driver
ends with the job.  Each task draws its slice from the seed, so it receives only the size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from noria.control.processes.supervisor import Supervisor
from noria.demo import lobsters
from noria.demo.lobsters import Size
from noria.spark.hosting.session import SparkSettings
from noria.spark.jobs.progress import Progress, ignore_progress, stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Cheaper compilation for a JVM that lives only for seconds: it needed 11 s of processor time instead of 18.
QUICK_JVM = "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PARTS = 4  # slices of each table, one for each task
CSV = {"header": "true", "quote": '"', "escape": '"'}  # quotes within quotes are doubled, as in RFC 4180

Batches = Iterator[pa.RecordBatch]
Make = Callable[[int], pa.RecordBatch]


def run(size: Size, directory: Path, log: Path, progress: Progress) -> None:
    """Write the files below `directory`, in one directory for each table.  Blocks, and leaves no process behind."""
    asyncio.run(run_job("noria.demo.generate:generate", "noria-demo", directory, log, progress,
                        {"amounts": asdict(size), "directory": str(directory)}))


def files(directory: Path, table: str) -> list[Path]:
    """Return the files that Spark wrote for a table."""
    return sorted((directory / table).glob("part-*"))


async def run_job(job: str, app_name: str, directory: Path, log: Path, progress: Progress, arguments: dict[str, Any]
                  ) -> Any:
    """Run a job on a Spark driver of its own.  The session is local: it makes files on this machine, even if the server
    uses a cluster."""
    settings = SparkSettings("local[2]", workers=0, scratch_dir=directory / ".spark", app_name=app_name,
                             conf=(("spark.driver.extraJavaOptions", QUICK_JVM),))
    supervisor = Supervisor(settings, log_path=log)
    try:
        await supervisor.start()
        return await supervisor.run_job(job, progress=progress, **arguments)
    finally:
        await supervisor.stop()


def generate(spark: SparkSession, progress: Progress = ignore_progress, *, amounts: dict[str, int],
             directory: str) -> None:
    """The job.  amounts: the fields of a `Size`."""
    size = Size(**amounts)
    with stages(spark, progress, "generating"):
        _made(spark, _Stories(size), "id int, author int, title string, url string").write.csv(
            f"{directory}/stories", **CSV)
        _made(spark, _Users(size), "id int, username string").write.csv(f"{directory}/users", **CSV)
        _made(spark, _Votes(size), "user int, story_id int").write.parquet(f"{directory}/votes")


def _made(spark: SparkSession, make: Make, schema: str) -> DataFrame:
    """Return the rows of a table; one task makes each slice."""

    def slices(numbers: Batches) -> Batches:
        for batch in numbers:
            for part in batch.column(0).to_pylist():
                yield make(part)

    return spark.range(0, PARTS, 1, PARTS).mapInArrow(slices, schema)


class _Slice:
    """Makes the rows of one table, a slice at a time."""

    def __init__(self, size: Size):
        self._size = size

    def _range(self, rows: int, part: int) -> tuple[Any, int]:
        """Return the ids of a slice, and the first one."""
        first, end = (rows * p // PARTS + 1 for p in (part, part + 1))
        return np.arange(first, end, dtype=np.int32), first


class _Stories(_Slice):
    def __call__(self, part: int) -> pa.RecordBatch:
        ids, first = self._range(self._size.stories, part)
        rng = self._size.rng(5, part)
        return pa.record_batch({
            "id": ids, "author": lobsters.authors(self._size, len(ids), rng).astype(np.int32),
            "title": pa.array(lobsters.titles(first, len(ids), rng)),
            "url": pa.array(lobsters.urls(first, len(ids), rng))})


class _Users(_Slice):
    def __call__(self, part: int) -> pa.RecordBatch:
        ids, _ = self._range(self._size.users, part)
        return pa.record_batch({"id": ids, "username": pa.array([f"user{i}" for i in ids.tolist()])})


class _Votes(_Slice):
    def __call__(self, part: int) -> pa.RecordBatch:
        made = lobsters.votes(self._size, part, PARTS)
        return pa.record_batch({"user": made.users.astype(np.int32), "story_id": made.stories.astype(np.int32)})
