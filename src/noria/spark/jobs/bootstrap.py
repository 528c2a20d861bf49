"""First state of a full node, computed by Spark from a snapshot (bulk replay, section 9 of the design).

The node's plan is lowered over the snapshot and written as Parquet; the worker that owns the node reads the
files and takes up the deltas after the snapshot's watermark.

Keeps true: the files hold exactly the plan's rows as a bag, in the form of `dataflow/inspect/export.py`: c0, c1, … in
the order of the plan's columns, e<i> where column i can hold an evaluation error, and `weight` (bigint).
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
from noria.spark.jobs.progress import Progress, quiet, stages
from noria.spark.lowering import lower

WEIGHT = "weight"


@dataclass(frozen=True)
class Replayed:
    """files: absolute paths of Parquet files, none of them empty of columns; rows: how many in all."""

    files: tuple[str, ...]
    rows: int


def bootstrap(spark: SparkSession, progress: Progress = quiet, *, checkpoint: str, tables: Sequence[TableDef],
              plan: Mir, out: str) -> Replayed:
    """The plan's rows over the checkpoint, in new Parquet files under the directory `out`."""
    spark = snapshot.session(spark)
    needed = tables_of(plan)
    base = snapshot.tables(spark, checkpoint, [t for t in tables if t.name in needed])
    seen = Observation("rows")
    rows = lower.flagged(lower.coded(plan, base), F.lit(1).cast("bigint").alias(WEIGHT))
    with stages(spark, progress, "first state"):
        rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.mode("errorifexists").parquet(out)
    files = sorted(os.path.join(os.path.abspath(out), f) for f in os.listdir(out) if f.endswith(".parquet"))
    return Replayed(tuple(files), int(seen.get["rows"]))
