"""Bulk load: writes SST files, which a worker only has to ingest (design/decisions.md, 8).

    files ─split─► tasks: read, check, encode ─by key range─► tasks: sort, write SST files ─► worker: Ingest
                             └ bad rows ─► reject file (JSON lines of `Reject.json`)

Spark exchanges rows by ranges of the encoded primary key and sorts each range.  For one worker, a table without a
primary key needs no order: the task that reads its rows writes them.  An index is a family like the table's own, and
its entries are sorted in the same way.

If the table has FOREIGN KEYs, `parents.py` first finds the rows that lack a parent, which are bad rows.

Keeps true: every row of every file is in the SST files or in the reject file, once.  Of rows with the same primary key,
the first in the files is kept.  The files of a family are disjoint, and each has its keys in ascending order.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from noria.core.errors import SqlError, auto_increment_exhausted
from noria.core.errors.codes import DUP_ENTRY
from noria.core.expressions.coerce import integer_bounds
from noria.core.types import TableDef
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.loading.parents import without_orphans
from noria.spark.loading.rows import checking, files
from noria.spark.loading.rows.files import InputFile
from noria.spark.loading.rows.orphans import ReferredKey
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks import rejects
from noria.spark.loading.tasks.ranges import place
from noria.spark.loading.tasks.running import collected, numbers
from noria.spark.loading.tasks.sources import gathered
from noria.spark.loading.tasks.tasks import (
    PARCEL_SCHEMA,
    Encode,
    EntryFile,
    Job,
    LoadRefused,
    Merge,
    TaskReport,
    WriteBag,
    count_unnumbered,
)
from noria.storage.format.catalog import family_of
from noria.storage.tables.table import Index

TARGET_BYTES = 64 * 2**20  # of source files (uncompressed) for one range of keys, which is sorted in memory
MAX_RANGES = 1024
SMALL_BYTES = 4 * 2**20  # a smaller load is sorted as one range


@dataclass(frozen=True)
class LoadSpec:
    """A load.  `indexes`: (columns, unique) of every index that the store keeps for the table.  `out`: a directory for
    the SST files, made if missing.  `max_rejects`: with more bad rows, the load fails.  `auto_increment`: the table's
    high-water mark.  `workers`: the number of shards.  `sources`: the plain files of `files`, if gathered before.
    `keys`: the FOREIGN KEYs, whose parents are looked up in the `checkpoint`."""

    table: TableDef
    files: tuple[str, ...]
    out: str
    reject_file: str
    reading: TextFormat = field(default_factory=TextFormat)
    indexes: tuple[tuple[tuple[int, ...], bool], ...] = ()
    max_rejects: int | None = None
    auto_increment: int = 0
    workers: int = 1
    sources: tuple[InputFile, ...] = ()
    keys: tuple[ReferredKey, ...] = ()
    checkpoint: str = ""


Files = tuple[tuple[str, tuple[str, ...]], ...]  # by column family


@dataclass(frozen=True)
class LoadReport:
    """The result of a load.  `files`, `rows`, `auto_increment`, `shards`: the values for `packets.Ingest`.  `shards`:
    (files, rows) for each of several workers, empty for one.  `reject_file`: has the rejected rows, "" if there are
    none.  `examples`: the first few reasons."""

    table: str
    files: Files
    rows: int
    auto_increment: int
    rejected: int
    reject_file: str
    examples: tuple[str, ...]
    nbytes: int
    seconds: float
    shards: tuple[tuple[Files, int], ...] = ()


def load(spark: SparkSession, progress: Progress = ignore_progress, *, spec: LoadSpec) -> LoadReport:
    """Build the SST files of `spec`.  Raises BadFile, LoadRefused or SqlError, and then removes `spec.out`."""
    started = time.monotonic()
    os.makedirs(spec.out, exist_ok=True)
    try:
        job = without_orphans(spark, progress, job_of(spark, progress, spec), spec.keys, spec.checkpoint)
        if spec.table.auto_increment is not None:
            with stages(spark, progress, f"counting rows for {spec.table.name}"):
                job = _numbered(spark, job, spec.auto_increment)
        with stages(spark, progress, f"loading {spec.table.name}"):
            found = sorted_files(spark, job, sum(s.nbytes for s in job.splits))
        _refuse_unsure(job, found)
        return _finish(spec, job, found, started)
    except BaseException:
        shutil.rmtree(spec.out, ignore_errors=True)
        raise


def _refuse_unsure(job: Job, found: Sequence[TaskReport]) -> None:
    """Raise LoadRefused if a row that is left out, because its primary key repeats, may be another one's parent."""
    others = any(key.own and key.parent_columns != job.table.primary_key for key in job.keys)
    if others and any(r.left_out for r in found):
        raise LoadRefused(f"rows of the files repeat the primary key, and {job.table.name} refers to another key of "
                          "itself; nothing was loaded: remove them")


def job_of(spark: SparkSession, progress: Progress, spec: LoadSpec) -> Job:
    """Plan the tasks' job.  Fetches and unpacks the files first, unless `spec.sources` has them."""
    reading = spec.reading
    sources = spec.sources or gathered(spark, progress, spec.files, reading, os.path.join(spec.out, "plain"))
    splits = files.plan(sources, reading, tuple(name for _, name in spec.table.shape))
    maps = {s.path: checking.map_columns(spec.table, s.names, s.shown) for s in splits}
    families = tuple(Index.of(spec.table, columns, unique) for columns, unique in spec.indexes)
    return Job(spec.table, families, tuple(splits), maps, reading, spec.out, secrets.randbits(22),
               datetime.now(UTC).replace(tzinfo=None, microsecond=0), spec.max_rejects, workers=spec.workers)


def _finish(spec: LoadSpec, job: Job, found: Sequence[TaskReport], started: float) -> LoadReport:
    """Combine the tasks' reports, and their rejects into one file.  Raises SqlError 1062 for a repeated UNIQUE key."""
    for r in found:
        if r.duplicate:
            raise SqlError(*DUP_ENTRY, r.duplicate)
    rejected, examples = rejects_of(spec, job, found)
    made = [f for r in found for f in r.files]
    shards = tuple(of_family(spec.table, [f for f in made if f.worker == w]) for w in range(spec.workers))
    return LoadReport(
        spec.table.name, *of_family(spec.table, made),
        max((r.auto_increment for r in found), default=0), rejected, spec.reject_file if rejected else "",
        examples, sum(os.path.getsize(f.path) for f in made), time.monotonic() - started,
        shards if spec.workers > 1 else ())


def rejects_of(spec: LoadSpec, job: Job, found: Sequence[TaskReport]) -> tuple[int, tuple[str, ...]]:
    """Write the reject file, and return the number of rejected rows and the first reasons.  Raises LoadRefused."""
    rejected = sum(r.rejected for r in found)
    examples = tuple(e for r in found for e in r.examples)[:5]
    if spec.max_rejects is not None and rejected > spec.max_rejects:
        raise _too_many(rejected, spec.max_rejects, examples)
    if rejected:
        parts = [r.reject_file for r in found if r.reject_file]
        rejects.gather(parts, job.splits, spec.reject_file)
        for part in parts:
            os.unlink(part)
    return rejected, examples


def of_family(table: TableDef, made: Sequence[EntryFile]) -> tuple[Files, int]:
    """Return the files by family, in the order of their keys, and the number of the table's rows in them."""
    by_family: dict[str, list[tuple[bytes, str]]] = {}
    for f in made:
        by_family.setdefault(f.family, []).append((f.first, f.path))
    own = family_of(table)
    return (tuple((n, tuple(p for _, p in sorted(some))) for n, some in sorted(by_family.items())),
            sum(f.rows for f in made if f.family == own))


def _too_many(rejected: int, limit: int, examples: Sequence[str]) -> LoadRefused:
    return LoadRefused(f"{rejected} bad rows are more than the {limit} allowed; nothing was loaded. "
                       f"First: {'; '.join(examples)}")


# ------------------------------------------------------------------ the Spark jobs
def _numbered(spark: SparkSession, job: Job, mark: int) -> Job:
    """Assign each split its first AUTO_INCREMENT number.  All exceed the mark and the numbers in the files."""
    counts = numbers(spark, len(job.splits)).mapInArrow(count_unnumbered(job),
                                                        "split bigint, unnumbered bigint, most bigint")
    found = collected(counts)
    most = max([mark, *(r["most"] for r in found)])
    firsts: dict[int, int] = {}
    for r in sorted(found, key=lambda r: r["split"]):
        firsts[r["split"]] = most + 1
        most += r["unnumbered"]
    column = job.table.columns[job.table.auto_increment or 0]
    if most > integer_bounds(column)[1]:
        raise auto_increment_exhausted(column.name)
    return job.with_numbers(firsts)


def sorted_files(spark: SparkSession, job: Job, nbytes: int) -> list[TaskReport]:
    """Run the tasks that read, sort and write, and return their reports.  Indexes are written after the rows, because
    a row that repeats a primary key must have no index entry."""
    wanted = 1 if nbytes < SMALL_BYTES else min(MAX_RANGES, max(_slots(spark), -(-nbytes // TARGET_BYTES)))
    splits = numbers(spark, len(job.splits))
    if job.table.primary_key or job.workers > 1:  # several workers divide a bag
        found = _sort(splits, job, (0,), wanted)
    else:
        found = reports(splits.mapInArrow(WriteBag(job), PARCEL_SCHEMA))
    if job.indexes:
        left_out = sorted(n for r in found for n in r.left_out)
        found += _sort(splits, job, tuple(range(1, len(job.families))), wanted, left_out)
    return found


def _sort(splits: DataFrame, job: Job, families: tuple[int, ...], wanted: int, left_out: Sequence[int] | None = None
          ) -> list[TaskReport]:
    """Exchange the entries of some families by part; one task sorts and writes each part."""
    ranges = place(job, families, -(-wanted // job.workers))
    encode = Encode(job, ranges, families, left_out is None, tuple(left_out or ()))
    parts = splits.mapInArrow(encode, PARCEL_SCHEMA).repartitionById(job.workers * ranges.total, F.col("part"))
    return reports(parts.mapInArrow(Merge(job, ranges, families), PARCEL_SCHEMA))


def reports(rows: DataFrame) -> list[TaskReport]:
    """Collect and decode the tasks' reports."""
    return [TaskReport.from_bytes(bytes(r["data"])) for r in collected(rows)]


def _slots(spark: SparkSession) -> int:
    return max(1, min(int(spark.sparkContext.defaultParallelism), os.cpu_count() or 1))
