"""Reads small tables and files in the driver, so that a query over them runs in one task.

For a query of a few rows, Spark needs a second: it starts Python workers, shuffles, and compiles code.  Rows that are
part of the plan, in one partition, need none of this.

Keeps true: a local DataFrame has the same rows and types as Spark's own scan of the table or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from noria.core.types import TableDef
from noria.core.values import arrow_type
from noria.spark.jobs import snapshot
from noria.spark.lowering import coding
from noria.storage.format.catalog import family_of
from noria.storage.offline.snapshot import read_checkpoint, sizes_about
from noria.storage.tables.shards import shards_of

ROWS, BYTES = 20_000, 4 * 2**20  # at most, of a small table or view's state


@cache
def session(spark: SparkSession) -> SparkSession:
    """Return the session for queries over local rows.  It does not adapt plans to sizes, and compiles no code."""
    own = snapshot.session(spark).newSession()
    for name, value in (("adaptive.enabled", "false"), ("shuffle.partitions", "1"),
                        ("codegen.wholeStage", "false"), ("codegen.factoryMode", "NO_CODEGEN")):
        own.conf.set(f"spark.sql.{name}", value)
    return own


def small_tables(checkpoint: str, tables: Iterable[TableDef]) -> set[str]:
    """Return the names of the tables that are small enough for the driver to read."""
    sizes = [sizes_about(shard) for shard in shards_of(checkpoint)]

    def is_small(table: TableDef) -> bool:
        each = [s.get(family_of(table), (0, 0)) for s in sizes]
        return sum(rows for rows, _ in each) <= ROWS and sum(nbytes for _, nbytes in each) <= BYTES

    return {t.name for t in tables if is_small(t)}


def table(spark: SparkSession, checkpoint: str, definition: TableDef) -> DataFrame:
    """Return all rows of a table, in shown columns c0, c1, … as `snapshot.table` does."""
    names = [f"c{i}" for i in range(len(definition.columns))]
    schema = pa.schema([(n, snapshot.as_spark(arrow_type(c.type)))
                        for n, c in zip(names, definition.columns, strict=True)])
    batches = [snapshot.renamed(b, names) for shard in shards_of(checkpoint)
               for b in read_checkpoint(shard, definition)]
    return _one_partition(spark.createDataFrame(pa.Table.from_batches(batches, schema),
                                                coding.shown_schema(definition.fields)))


def are_small(files: Sequence[str]) -> bool:
    return sum(Path(f).stat().st_size for f in files) <= BYTES and (
        sum(pq.read_metadata(f).num_rows for f in files) <= ROWS)


def parquet(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Return the rows of Parquet files, whose columns may differ.  Decimals get 38 digits: a sum may have more digits
    than its type declares, and Spark refuses this in Arrow columns."""
    rows = pa.concat_tables([pq.read_table(f) for f in files], promote_options="default")
    wide = pa.schema([f.with_type(_widest(f.type)) for f in rows.schema])
    return _one_partition(spark.createDataFrame(rows.cast(wide)))


def _widest(t: pa.DataType) -> pa.DataType:
    return pa.decimal128(38, t.scale) if pa.types.is_decimal(t) else t


def _one_partition(rows: DataFrame) -> DataFrame:
    """Put all rows in one partition, so that groups and joins need no exchange."""
    return rows.coalesce(1)
