"""Makes the entries of an index from a checkpoint by Spark's tasks: sorted files, which the worker ingests.

Each task reads ranges of the table and makes their entries.  Spark exchanges the entries by ranges of the index.  A
task sorts each range and writes a file, as in the second half of a bulk load (`loading/tasks/tasks.py`).

Keeps true: the files are disjoint and hold one entry for each row of the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from noria.core.types import TableDef
from noria.spark.jobs import snapshot
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.loading.load import reports
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.ranges import KeyRanges, quantiles
from noria.spark.loading.tasks.tasks import PARCEL_SCHEMA, ROW_BITS, Batches, Job, Merge, parcelled
from noria.storage.offline.snapshot import KeyRange, read_entries, read_tables, rows_about, split
from noria.storage.rocks.disk import sync
from noria.storage.tables.table import Index

FILE_ROWS = 2_000_000  # of a range of the index: a task sorts about 200 MB
SAMPLED = 2_000  # entries read of each key range to compute the bounds


@dataclass(frozen=True)
class IndexFilesMade:
    """The result.  files: their paths, below `out`.  rows: the total number of entries."""

    files: tuple[str, ...]
    rows: int


def index(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, table: TableDef,
          columns: Sequence[int], out: str) -> IndexFilesMade:
    """Write the files of the index (not UNIQUE) of these columns to the new directory `out`.

    Raises ValueError if the checkpoint lacks the table, or has it with an earlier primary key.
    """
    then = next((t for t in read_tables(checkpoint).values() if t.table_id == table.table_id), None)
    if then is None or then.keyed != table.keyed:
        raise ValueError(f"table {table.name} is another one in the snapshot {checkpoint}")
    made = Index.of(table, tuple(columns))
    slots = max(1, min(int(spark.sparkContext.defaultParallelism), os.cpu_count() or 1))
    key_ranges = split(checkpoint, table, snapshot.RANGES_PER_SLOT * slots, snapshot.LEAST_ROWS)
    os.makedirs(out)
    job = Job(table, (made,), (), {}, TextFormat(), out, 0, datetime.min, None)
    parts = max(slots, -(-rows_about(checkpoint, table) // FILE_ROWS))
    ranges = KeyRanges((quantiles(sorted(_sampled(checkpoint, table, made, key_ranges)), parts),))
    with stages(spark, progress, f"making an index of {table.name}"):
        numbers = spark.range(0, len(key_ranges), 1, len(key_ranges))
        entries = numbers.mapInArrow(_Encode(checkpoint, table, made, tuple(key_ranges), ranges), PARCEL_SCHEMA)
        parcels = entries.repartitionById(ranges.total, F.col("part"))
        files = [f for r in reports(parcels.mapInArrow(Merge(job, ranges, (1,)), PARCEL_SCHEMA)) for f in r.files]
    for f in files:
        sync(f.path)  # so that the worker need not
    return IndexFilesMade(tuple(f.path for f in sorted(files, key=lambda f: f.first)), sum(f.rows for f in files))


def _sampled(checkpoint: str, table: TableDef, index: Index, key_ranges: Sequence[KeyRange]) -> Iterator[bytes]:
    """Read some index keys of each key range of the table."""
    for key_range in key_ranges:
        with closing(read_entries(checkpoint, table, index, [key_range], SAMPLED)) as entries:
            for some in islice(entries, 1):
                yield from some.column("key").to_pylist()


@dataclass(frozen=True)
class _Encode:
    """A task that reads the entries of key ranges of the table, and sends them as parcels to their parts."""

    checkpoint: str
    table: TableDef
    index: Index
    key_ranges: tuple[KeyRange, ...]
    ranges: KeyRanges

    def __call__(self, numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._parcels_of(number)

    def _parcels_of(self, number: int) -> Iterator[pa.RecordBatch]:
        at = number << ROW_BITS
        for made in read_entries(self.checkpoint, self.table, self.index, [self.key_ranges[number]]):
            places = np.arange(at, at + made.num_rows)
            yield parcelled(self.ranges, 0, made.append_column("n", pa.array(places)))
            at += made.num_rows
