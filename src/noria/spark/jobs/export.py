"""Writes a query's or a view's rows over a snapshot to Parquet files, which the source's tasks read.

Keeps true: the files 0.parquet to files - 1 exist, and together hold the plan's rows.  A row with an evaluation error
fails the job.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from noria.core.types import TableDef
from noria.plan.mir import Mir, tables_of
from noria.plan.optimizer import error_reporting_plan
from noria.spark.jobs import snapshot
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.lowering import lower


def export(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, tables: Sequence[TableDef],
           plan: Mir, visible: int, out: str, files: int) -> None:
    """Write the plan's rows to `files` files in the new directory `out`.  visible: the number of leading columns."""
    spark = snapshot.session(spark)
    needed = tables_of(plan)
    base = snapshot.tables(spark, checkpoint, [t for t in tables if t.name in needed])
    rows = lower.dataframe(error_reporting_plan(plan), base).select(*[f"c{i}" for i in range(visible)])
    with stages(spark, progress, "query"):
        rows.repartition(files).write.mode("errorifexists").parquet(out)
    made = sorted(f for f in os.listdir(out) if f.endswith(".parquet"))
    empty = pq.read_schema(os.path.join(out, made[0])).empty_table()
    for number in range(files):
        path = os.path.join(out, f"{number}.parquet")
        if number < len(made):
            shutil.move(os.path.join(out, made[number]), path)
        else:
            pq.write_table(empty, path)
