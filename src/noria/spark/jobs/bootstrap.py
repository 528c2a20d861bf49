"""Computes the first state of a full node by Spark from a snapshot (bulk replay; design/decisions.md, 9).

It lowers the node's plan over the snapshot and writes the rows as Parquet.  The worker that owns the node reads the
files and applies the deltas after the snapshot's watermark.

Keeps true: the files hold exactly the plan's rows as a bag.  Their columns are those of `dataflow/inspect/export.py`:
c0, c1, … in the plan's order, e<i> if column i can hold an evaluation error, and `weight` (bigint).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import pyspark.sql.functions as F
from pyspark.sql import Observation, SparkSession

from noria.core.types import TableDef
from noria.plan.mir import Mir, tables_of
from noria.spark.jobs import snapshot
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.lowering import lower

WEIGHT = "weight"


@dataclass(frozen=True)
class BootstrapFiles:
    """The result.  files: absolute paths of Parquet files, all with columns.  rows: their total number of rows."""

    files: tuple[str, ...]
    rows: int


def bootstrap(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, tables: Sequence[TableDef],
              plan: Mir, out: str) -> BootstrapFiles:
    """Write the plan's rows over the checkpoint to Parquet files in the new directory `out`."""
    spark = snapshot.session(spark)
    needed = tables_of(plan)
    base = snapshot.tables(spark, checkpoint, [t for t in tables if t.name in needed])
    seen = Observation("rows")
    rows = lower.flagged(lower.coded(plan, base), F.lit(1).cast("bigint").alias(WEIGHT))
    with stages(spark, progress, "first state"):
        rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.mode("errorifexists").parquet(out)
    files = sorted(os.path.join(os.path.abspath(out), f) for f in os.listdir(out) if f.endswith(".parquet"))
    return BootstrapFiles(tuple(files), int(seen.get["rows"]))
