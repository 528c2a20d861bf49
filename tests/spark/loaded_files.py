"""Files read as a load reads them, without a store: the rows as Python values, and the rejects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from noria.core.types import TableDef
from noria.spark.jobs.progress import ignore_progress
from noria.spark.loading.rows import checking, files
from noria.spark.loading.rows.files import InputFile, Reject
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.rejects import FirstLines, placed
from noria.spark.loading.tasks.sources import gathered

NOW = datetime(2024, 1, 2, 3, 4, 5)
Row = tuple[Any, ...]


def read(spark: SparkSession, path: Path, table: TableDef, reading: TextFormat, place: Path
         ) -> tuple[list[Row], list[Reject]]:
    """Of a file, or of all in a directory but for those that begin with _ or ."""
    named = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.name[0] not in "._")
    return rows_of(gathered(spark, ignore_progress, [str(p) for p in named], reading, str(place)), table, reading)


def rows_of(sources: Sequence[InputFile], table: TableDef, reading: TextFormat) -> tuple[list[Row], list[Reject]]:
    rows: list[Row] = []
    rejects: list[Reject] = []
    first = FirstLines()
    for split in files.plan(sources, reading, tuple(c.name for c in table.columns)):
        mapping = checking.map_columns(table, split.names, split.path)
        columns = {n: table.columns[i] for i, n in enumerate(mapping.names) if n is not None}
        for chunk in files.read(split, reading, columns):
            csv = reading if split.format == "csv" else None
            batch, bad = checking.convert(chunk, mapping, table, checking.defaults(table, NOW), split.path, csv)
            batch.validate(full=True)
            rows += list(zip(*(c.to_pylist() for c in batch.columns), strict=True))
            rejects += [placed(r, split, first) for r in bad]
    return rows, rejects
