"""A table's rows for another number of workers, as sorted files for each: the table's own, and those of its indexes.

Every task reads ranges of the table in the checkpoints of the old workers and makes all entries of the rows; Spark
brings the entries of a worker and a range together, and the task that has them sorts them and writes a file (the second
half of a bulk load, `loading/tasks.py`).  What is little is made without Spark.

Keeps true: the files of a family and worker are disjoint; memory is bounded by a range, whatever the table's size.
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
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from noria.core.types import TableDef
from noria.spark.jobs.progress import Progress, quiet, stages
from noria.spark.loading.files import Reading
from noria.spark.loading.load import reports
from noria.spark.loading.ranges import Ranges, quantiles
from noria.spark.loading.tasks import (
    PARCEL_SCHEMA,
    ROW_BITS,
    Batches,
    Job,
    Merge,
    Report,
    in_order,
    parcelled,
)
from noria.storage.dealing import NUMBER_BITS, deal
from noria.storage.disk import sync
from noria.storage.entries_hash import Sums
from noria.storage.errors import StoreError
from noria.storage.shards import shards_of
from noria.storage.snapshot import Range, bytes_about, rows_about, split
from noria.storage.sst import ENTRY, SstFile, write_file
from noria.storage.table import Index

LITTLE_ROWS, LITTLE_BYTES = 200_000, 32 * 2**20  # of a table that is dealt without Spark
PART_ROWS, PART_BYTES = 1_000_000, 48 * 2**20  # of a range of a worker's: a task sorts it in memory
PIECES_PER_PART = 4  # so that what is read of each piece's start tells where ranges end
SAMPLED = 1_000  # rows of each piece
SORTED_ROWS = 50_000

Piece = tuple[str, Range]


@dataclass(frozen=True)
class Dealt:
    """files: by worker and family; row_number: the greatest that was given; sums: of the rows that were read."""

    files: dict[tuple[int, str], list[SstFile]]
    row_number: int
    sums: Sums


def reshard(spark: Callable[[], SparkSession], progress: Progress = quiet, *, checkpoint: str, table: TableDef,
            indexes: Sequence[Index], workers: int, out: str) -> Dealt:
    """spark: gives a session, if one is needed.  checkpoint: of all old workers; out: a new directory for the files,
    which are on disk when this returns.  StoreError: rows are not kept apart as they must be."""
    shards = shards_of(checkpoint)
    rows, nbytes = (sum(about(s, table) for s in shards) for about in (rows_about, bytes_about))
    os.makedirs(out)
    job = Job(table, tuple(indexes), (), {}, Reading(), out, 0, datetime.min, None, workers=workers)
    if rows <= LITTLE_ROWS and nbytes <= LITTLE_BYTES:
        return _little(job, shards)
    session = spark()
    slots = max(1, min(int(session.sparkContext.defaultParallelism), os.cpu_count() or 1))
    parts = max(1, -(-rows // (workers * PART_ROWS)), -(-nbytes // (workers * PART_BYTES)))
    each = -(-max(2 * slots, PIECES_PER_PART * parts) // len(shards))
    pieces = [(shard, some) for shard in shards for some in split(shard, table, each)]
    ranges = _ranges(job, pieces, parts)
    families = tuple(range(len(job.families)))
    with stages(session, progress, f"table {table.name}"):
        numbers = session.range(0, len(pieces), 1, len(pieces))
        entries = numbers.mapInArrow(_Deal(job, tuple(pieces), ranges), PARCEL_SCHEMA)
        parcels = entries.repartitionById(workers * ranges.total, F.col("part"))
        found = reports(parcels.mapInArrow(Merge(job, ranges, families), PARCEL_SCHEMA))
    files: dict[tuple[int, str], list[SstFile]] = {}
    for r in found:
        if r.duplicate or r.rejected:
            raise _not_apart(table, r.duplicate or "; ".join(r.examples))
        for f in r.files:
            sync(f.path)
            last = b""  # nobody asks
            files.setdefault((f.worker, f.family), []).append(SstFile(f.path, f.rows, f.first, last,
                                                                      os.path.getsize(f.path)))
    read = reduce(Sums.plus, (r.sums for r in found if isinstance(r, _Read)), Sums())
    return Dealt(files, _last_number(table, len(pieces)), read)


def _last_number(table: TableDef, pieces: int) -> int:
    """Above all row numbers of so many pieces."""
    return 0 if table.primary_key else pieces << NUMBER_BITS


def _not_apart(table: TableDef, what: str) -> StoreError:
    return StoreError(f"table {table.name} has rows that are not kept apart ({what}): noria verify lists them on a "
                      "server with the old number of workers; mend them there first")


def _ranges(job: Job, pieces: Sequence[Piece], parts: int) -> Ranges:
    """Bounds for each family, by some rows of each piece."""
    seen: list[list[bytes]] = [[] for _ in job.families]
    for number, (shard, some) in enumerate(pieces if parts > 1 else ()):
        with closing(deal(shard, job.table, job.indexes, some, number, 1, Sums(), SAMPLED)) as dealt:
            for _, made in islice(dealt, 1):
                for keys, entries in zip(seen, made, strict=True):
                    keys += entries.column("key").to_pylist()
    return Ranges(tuple(quantiles(sorted(keys), parts) for keys in seen))


def _little(job: Job, shards: Sequence[str]) -> Dealt:
    """All in this process."""
    sums, files = Sums(), dict[tuple[int, str], list[SstFile]]()
    held: dict[tuple[int, int], list[pa.RecordBatch]] = {}
    at = 0
    for number, shard in enumerate(shards):
        for worker, made in deal(shard, job.table, job.indexes, Range(), number, job.workers, sums):
            for place, entries in enumerate(made):
                held.setdefault((worker, place), []).append(_placed(entries, at))
            at += made[0].num_rows
    for (worker, place), some in sorted(held.items()):
        path = os.path.join(job.out, f"{worker}-{place}.sst")
        entries = in_order(some).select(ENTRY.names).to_batches(SORTED_ROWS)
        file = write_file(path, entries, partial(_refuse, job))
        if file is not None:
            sync(path)
            files[worker, job.family(place)] = [file]
    return Dealt(files, _last_number(job.table, len(shards)), sums)


def _refuse(job: Job, key: bytes, value: bytes) -> None:
    raise _not_apart(job.table, f"the key {key.hex()} is there twice")


def _placed(entries: pa.RecordBatch, at: int) -> pa.RecordBatch:
    return entries.append_column("n", pa.array(np.arange(at, at + entries.num_rows)))


@dataclass(frozen=True)
class _Read(Report):
    """What a task has read."""

    sums: Sums = field(default_factory=Sums)


@dataclass(frozen=True)
class _Deal:
    """Pieces of the table to entries, each in the parcel of its worker and part."""

    job: Job
    pieces: tuple[Piece, ...]
    ranges: Ranges

    def __call__(self, numbers: Batches) -> Batches:
        sums = Sums()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._piece(number, sums)
        yield _Read(sums=sums).parcel()

    def _piece(self, number: int, sums: Sums) -> Iterator[pa.RecordBatch]:
        shard, some = self.pieces[number]
        at = number << ROW_BITS
        for worker, made in deal(shard, self.job.table, self.job.indexes, some, number, self.job.workers, sums):
            for place, entries in enumerate(made):
                if entries.num_rows:
                    yield parcelled(self.ranges, place, _placed(entries, at), worker)
            at += made[0].num_rows
