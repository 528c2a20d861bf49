"""Prepares loads whose rows may be stored already (INSERT IGNORE, REPLACE): Arrow files of rows for statements.

Keeps true: every row of the source files is in the Arrow files, in the same order, or in the reject file, once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from noria.core.limits import SOURCE_STATEMENT_ROWS
from noria.core.types import TableDef
from noria.core.values import arrow_type
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.loading.load import LoadSpec, job_of, rejects_of, reports
from noria.spark.loading.parents import without_orphans
from noria.spark.loading.tasks.running import numbers
from noria.spark.loading.tasks.tasks import (
    PARCEL_SCHEMA,
    Batches,
    EntryFile,
    Job,
    Rejected,
    each,
    name_of,
    read_split,
)


@dataclass(frozen=True)
class RowsReport:
    """files: Arrow files, in the order of their rows.  Each batch is for one statement and has the table's visible
    columns.  The other fields are those of `LoadReport`."""

    files: tuple[str, ...]
    rows: int
    rejected: int
    reject_file: str
    examples: tuple[str, ...]


def rows(spark: SparkSession, progress: Progress = ignore_progress, *, spec: LoadSpec) -> RowsReport:
    """Read and check the files of `spec`.  Raises BadFile or LoadRefused, and then removes `spec.out`."""
    os.makedirs(spec.out, exist_ok=True)
    try:
        job = without_orphans(spark, progress, job_of(spark, progress, spec), spec.keys, spec.checkpoint)
        with stages(spark, progress, f"reading rows for {spec.table.name}"):
            found = reports(numbers(spark, len(job.splits)).mapInArrow(WriteRows(job), PARCEL_SCHEMA))
        rejected, examples = rejects_of(spec, job, found)
    except BaseException:
        shutil.rmtree(spec.out, ignore_errors=True)
        raise
    made = sorted((f for r in found for f in r.files), key=lambda f: f.first)
    return RowsReport(tuple(f.path for f in made), sum(f.rows for f in made), rejected,
                      spec.reject_file if rejected else "", examples)


@dataclass(frozen=True)
class WriteRows:
    """A task that writes an Arrow file for each of its splits."""

    job: Job

    def __call__(self, numbers: Batches) -> Batches:
        rejected, made = Rejected(self.job, name_of("rows")), []
        for number in each(numbers):
            path, held = os.path.join(self.job.out, f"{name_of('rows')}-{number}.arrow"), 0
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema_of(self.job.table)) as out:
                for batch in self._batches(number, rejected):
                    out.write_batch(batch)
                    held += batch.num_rows
            made.append(EntryFile("", path, held, number.to_bytes(8, "big")))
        yield rejected.report(files=tuple(made)).parcel()

    def _batches(self, number: int, rejected: Rejected) -> Iterator[pa.RecordBatch]:
        shown = list(self.job.table.writable)
        for batch in read_split(self.job, self.job.splits[number], rejected):
            for start in range(0, batch.num_rows, SOURCE_STATEMENT_ROWS):
                yield batch.select(shown).slice(start, SOURCE_STATEMENT_ROWS)


def schema_of(table: TableDef) -> pa.Schema:
    return pa.schema([(table.columns[i].name, arrow_type(table.columns[i].type)) for i in table.writable])
