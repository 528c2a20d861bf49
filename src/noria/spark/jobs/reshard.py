"""Writes sorted files of a table and its indexes for another number of workers.

Each task reads a range of the table in the checkpoints of all old workers.  It writes a file of rows for each new
worker; a range's rows are already almost in order.  Spark exchanges the entries of indexes by worker and range, and a
task sorts each range and writes a file, as in a bulk load (`loading/tasks/tasks.py`).  Small tables need no Spark.

Keeps true: the files of a family and worker are disjoint.  A task holds at most one range in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, reduce
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from noria.core.types import TableDef
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.loading.load import reports
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.ranges import KeyRanges, quantiles
from noria.spark.loading.tasks.tasks import (
    PARCEL_SCHEMA,
    ROW_BITS,
    SORTED_ROWS,
    Batches,
    EntryFile,
    Job,
    Merge,
    TaskReport,
    parcelled,
    sorted_entries,
)
from noria.storage.format.entries_hash import MultisetHash
from noria.storage.offline.repartitioning import NUMBER_BITS, deal
from noria.storage.offline.snapshot import KeyRange, split
from noria.storage.rocks.disk import sync
from noria.storage.rocks.errors import StoreError
from noria.storage.tables.shards import shards_of
from noria.storage.tables.sst import ENTRY, SstFile, describe, write_file
from noria.storage.tables.table import Index

LITTLE_ROWS, LITTLE_BYTES = 200_000, 32 * 2**20  # at most, of a table that is divided without Spark
PART_ROWS, PART_BYTES = 1_000_000, 48 * 2**20  # of a range, which a task sorts in memory
RANGES_PER_SLOT = 4  # at least: the sizes of ranges are estimates
SAMPLED = 1_000  # rows of each range that are read to compute bounds



@dataclass(frozen=True)
class ReshardedFiles:
    """The result.  files: by worker and family.  row_number: an upper bound of the assigned ones, 0 for a table with a
    primary key.  sums: of the rows that were read."""

    files: dict[tuple[int, str], list[SstFile]]
    row_number: int
    sums: MultisetHash


def reshard(spark: Callable[[], SparkSession], progress: Progress = ignore_progress, *, checkpoint: str,
            table: TableDef, indexes: Sequence[Index], workers: int, out: str,
            about: Sequence[tuple[int, int]]) -> ReshardedFiles:
    """Write the files, and sync them.  Raises StoreError if two rows have the same primary or UNIQUE key.

    `spark`: makes a session; only called for large tables.  `checkpoint`: of all old workers.  `out`: a new directory.
    `about`: rows and bytes of the table at each old worker, as estimates.
    """
    shards = shards_of(checkpoint)
    rows, nbytes = map(sum, zip(*about, strict=True))
    os.makedirs(out)
    job = Job(table, tuple(indexes), (), {}, TextFormat(), out, 0, datetime.min, None, workers=workers)
    if rows <= LITTLE_ROWS and nbytes <= LITTLE_BYTES:
        return _little(job, shards)
    session = spark()
    slots = max(1, min(int(session.sparkContext.defaultParallelism), os.cpu_count() or 1))
    count = max(RANGES_PER_SLOT * slots, -(-rows // PART_ROWS), -(-nbytes // PART_BYTES))
    largest = shards[max(range(len(shards)), key=about.__getitem__)]  # a hash distributes all shards' keys alike
    ranges = split(largest, table, count)
    bounds = _bounds(job, largest, ranges, max(1, -(-rows // (workers * PART_ROWS))))
    with stages(session, progress, f"table {table.name}"):
        numbers = session.range(0, len(ranges), 1, len(ranges))
        dealt = numbers.mapInArrow(_ReshardTask(job, tuple(shards), tuple(ranges), bounds), PARCEL_SCHEMA)
        if indexes:
            parcels = dealt.repartitionById(workers * bounds.total, F.col("part"))
            dealt = parcels.mapInArrow(Merge(job, bounds, tuple(range(1, len(job.families)))), PARCEL_SCHEMA)
        found = reports(dealt)
    files: dict[tuple[int, str], list[SstFile]] = {}
    for r in found:
        if r.duplicate:
            raise _not_apart(table, r.duplicate)
        for f in r.files:
            sync(f.path)
            files.setdefault((f.worker, f.family), []).append(describe(f.path))
    read = reduce(MultisetHash.plus, (r.sums for r in found if isinstance(r, _ReadReport)), MultisetHash())
    return ReshardedFiles(files, _last_number(table, len(ranges) * len(shards)), read)


def _last_number(table: TableDef, parts: int) -> int:
    """Return an upper bound of the row numbers that `deal` assigns in so many parts, 0 if none are assigned."""
    return 0 if table.primary_key else parts << NUMBER_BITS


def _not_apart(table: TableDef, what: str) -> StoreError:
    return StoreError(f"table {table.name} has rows that are not kept apart ({what}): noria verify lists them on a "
                      "server with the old number of workers; mend them there first")


def _bounds(job: Job, shard: str, ranges: Sequence[KeyRange], parts: int) -> KeyRanges:
    """Compute the bounds of each index's parts from a sample of each range."""
    seen: list[list[bytes]] = [[] for _ in job.indexes]
    for some in ranges if parts > 1 and job.indexes else ():
        with closing(deal(shard, job.table, job.indexes, some, 0, 1, MultisetHash(), SAMPLED)) as dealt:
            for _, made in islice(dealt, 1):
                for keys, entries in zip(seen, made[1:], strict=True):
                    keys += entries.column("key").to_pylist()
    return KeyRanges(tuple(quantiles(sorted(keys), parts) for keys in seen))


def _little(job: Job, shards: Sequence[str]) -> ReshardedFiles:
    """Divide a small table in this process."""
    sums, files = MultisetHash(), dict[tuple[int, str], list[SstFile]]()
    held: dict[tuple[int, int], list[pa.RecordBatch]] = {}
    at = 0
    for number, shard in enumerate(shards):
        for worker, made in deal(shard, job.table, job.indexes, KeyRange(), number, job.workers, sums):
            for place, entries in enumerate(made):
                held.setdefault((worker, place), []).append(_placed(entries, at))
            at += made[0].num_rows
    for (worker, place), some in sorted(held.items()):
        file = _written(job, os.path.join(job.out, f"{worker}-{place}.sst"), some)
        if file is not None:
            sync(file.path)
            files[worker, job.family(place)] = [file]
    return ReshardedFiles(files, _last_number(job.table, len(shards)), sums)


def _written(job: Job, path: str, some: list[pa.RecordBatch]) -> SstFile | None:
    """Write entries to a file, after sorting them if they are not in order."""
    rows = pa.Table.from_batches(some)
    keys = rows.column("key").combine_chunks()
    if not pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py():
        rows = sorted_entries(some)
    return write_file(path, rows.select(ENTRY.names).to_batches(SORTED_ROWS), partial(_refuse, job))


def _refuse(job: Job, key: bytes, value: bytes) -> None:
    raise _not_apart(job.table, f"the key {key.hex()} is there twice")


def _placed(entries: pa.RecordBatch, at: int) -> pa.RecordBatch:
    return entries.append_column("n", pa.array(np.arange(at, at + entries.num_rows)))


@dataclass(frozen=True)
class _ReadReport(TaskReport):
    """A task's report, with the sums of the rows that it read."""

    sums: MultisetHash = field(default_factory=MultisetHash)


@dataclass(frozen=True)
class _ReshardTask:
    """A task that writes files of the rows in its ranges.  It sends the entries of indexes as parcels to their worker
    and part."""

    job: Job
    shards: tuple[str, ...]
    ranges: tuple[KeyRange, ...]
    bounds: KeyRanges

    def __call__(self, numbers: Batches) -> Batches:
        sums, files = MultisetHash(), list[EntryFile]()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._range(number, sums, files)
        yield _ReadReport(files=tuple(files), sums=sums).parcel()

    def _range(self, number: int, sums: MultisetHash, files: list[EntryFile]) -> Iterator[pa.RecordBatch]:
        held: dict[int, list[pa.RecordBatch]] = {}
        at = number << ROW_BITS
        for part, shard in enumerate(self.shards, number * len(self.shards)):
            for worker, made in deal(shard, self.job.table, self.job.indexes, self.ranges[number], part,
                                     self.job.workers, sums):
                rows, *entries = (_placed(b, at) for b in made)
                held.setdefault(worker, []).append(rows)
                for place, some in enumerate(entries):
                    yield parcelled(self.bounds, place, some, worker)
                at += rows.num_rows
        for worker, batches in held.items():
            name = f"rows-{number}-{worker}-{TaskContext.get().taskAttemptId()}.sst"
            made_of = _written(self.job, os.path.join(self.job.out, name), batches)
            if made_of is not None:
                files.append(EntryFile(self.job.family(0), made_of.path, made_of.rows, made_of.first, worker))
