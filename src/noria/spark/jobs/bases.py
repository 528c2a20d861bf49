"""Reads the base tables of a job over views, and processes several views at a time.

Keeps true: a table is read once for all views of the job.  If a view's tables and state are small, the driver itself
reads the rows (`local.py`).  The progress callback runs in the job's own thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from noria.core.types import TableDef
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.spark.jobs import local, snapshot
from noria.spark.jobs.progress import Progress
from noria.spark.lowering.relation import Tables

AT_ONCE = 4  # views: small ones mostly wait for planning, and the tasks of large ones share the slots
LOOK_S = 0.5  # between two checks whether the job was cancelled

T = TypeVar("T")
R = TypeVar("R")


class ViewRowSource:
    """Reads the rows of one view: its tables, and the files of its state."""

    def __init__(self, spark: SparkSession, table: Callable[[str], DataFrame], parquet: Callable[..., DataFrame]):
        self._spark, self._table, self._parquet = spark, table, parquet

    def tables(self, view: ViewDef) -> Tables:
        return {name: self._table(name) for name in tables_of(view.plan)}

    def parquet(self, files: Sequence[str]) -> DataFrame:
        return self._parquet(self._spark, files)

    def rows(self, rows: Iterable[tuple[Any, ...]], schema: StructType | str) -> DataFrame:
        return self._spark.createDataFrame(rows, schema)


class SnapshotTables:
    """The tables of a checkpoint.  definitions: by name, of the tables that the checkpoint holds."""

    def __init__(self, spark: SparkSession, checkpoint: str, tables: Iterable[TableDef], views: Iterable[ViewDef]):
        self._spark, self._local, self._checkpoint = snapshot.session(spark), local.session(spark), checkpoint
        self.definitions = snapshot.held_of(checkpoint, tables)
        self._small = local.small_tables(checkpoint, self.definitions.values())
        self._uses = Counter(name for v in views for name in tables_of(v.plan))
        self._made: dict[tuple[str, bool], DataFrame] = {}
        self._making = threading.Lock()

    def source(self, view: ViewDef, files: Sequence[str]) -> ViewRowSource:
        """Return where to read a view: in the driver if all is small, else by tasks.  files: of the view's state."""
        if set(tables_of(view.plan)) <= self._small and local.are_small(files):
            return ViewRowSource(self._local, partial(self._table, small=True), local.parquet)
        return ViewRowSource(self._spark, partial(self._table, small=False), _parquet)

    def _table(self, name: str, small: bool) -> DataFrame:
        with self._making:
            if (name, small) not in self._made:
                definition = self.definitions[name]
                if small:
                    rows = local.table(self._local, self._checkpoint, definition)
                else:
                    rows = snapshot.table(self._spark, self._checkpoint, definition)
                    rows = rows.persist() if self._uses[name] > 1 else rows  # scanned once
                self._made[name, small] = rows
            return self._made[name, small]

    def close(self) -> None:
        for (_, small), rows in self._made.items():
            if not small:
                rows.unpersist()

    def each(self, work: Callable[[T], R], some: Sequence[T], name: Callable[[T], str], progress: Progress) -> list[R]:
        """Do the work for each item, AT_ONCE at a time, and return the results in order.

        progress: raises an exception if the job was cancelled; then running work fails and no more begins.
        """
        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            futures = {pool.submit(inheritable_thread_target(self._spark)(work), one): one for one in some}
            waiting = set(futures)
            while waiting:
                first = next(f for f in futures if f in waiting)
                progress(len(futures) - len(waiting), len(futures), name(futures[first]))
                _, waiting = wait(waiting, LOOK_S, FIRST_COMPLETED)
            return [f.result() for f in futures]
        finally:
            pool.shutdown(cancel_futures=True)


def _parquet(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    return spark.read.option("mergeSchema", "true").parquet(*files)
