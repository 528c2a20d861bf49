"""Answers a query without a view over a snapshot, and describes it for EXPLAIN.

Keeps true: the answer is all of the plan's rows at the snapshot's watermark, in the plan's order if it has one.  More
than `max_rows` rows, more than SPARK_RESULT_BYTES, or a row with an evaluation error raises SqlError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from noria.core.errors import SqlError
from noria.core.errors.codes import TOO_BIG_SELECT
from noria.core.limits import SPARK_RESULT_BYTES, SPARK_RESULT_ROWS
from noria.core.types import Kind, TableDef
from noria.core.values import arrow_type, evaluation_error
from noria.plan.mir import Mir, show, tables_of
from noria.plan.optimizer import error_reporting_plan
from noria.plan.read_errors import of_read
from noria.spark.jobs import snapshot
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.lowering import coding, lower


@dataclass(frozen=True)
class QueryAnswer:
    """rows: a column for each visible field, with its name and `values.arrow_type` (decimals have 19 digits)."""

    rows: pa.Table


def query(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, tables: Sequence[TableDef],
          plan: Mir, visible: int | None = None, max_rows: int = SPARK_RESULT_ROWS) -> QueryAnswer:
    """Return the plan's rows over the checkpoint.  Raises SqlError.  visible: return only so many leading columns."""
    spark = snapshot.session(spark)
    needed = tables_of(plan)
    base = snapshot.tables(spark, checkpoint, [t for t in tables if t.name in needed])
    relation = lower.coded(error_reporting_plan(plan), base)
    with stages(spark, progress, "query"):
        arrow = _collected(lower.flagged(relation))
    if arrow.num_rows > max_rows:
        raise _too_large(f"{max_rows} rows")
    shown = plan.fields[:visible]
    for i, f in enumerate(shown):
        if f"e{i}" in arrow.column_names and pc.any(arrow[f"e{i}"]).as_py():
            raise of_read(plan, evaluation_error(f.type))
    columns = []
    for i, f in enumerate(shown):
        wanted = arrow_type(f.type)
        if f.type.kind is Kind.DECIMAL:
            wanted = pa.decimal128(coding.RESULT_DIGITS, f.type.scale)
        columns.append(arrow[f"c{i}"].cast(wanted))
    return QueryAnswer(pa.Table.from_arrays(columns, names=[f.name for f in shown]))


def _collected(rows: DataFrame) -> pa.Table:
    """Collect all rows.  The plan has no LIMIT, which would first collect them in one partition."""
    try:
        arrow = rows.toArrow()
    except Exception as e:
        if "spark.driver.maxResultSize" in str(e):
            raise _too_large(f"{SPARK_RESULT_BYTES >> 20} MB") from e
        raise
    if arrow.nbytes > SPARK_RESULT_BYTES:
        raise _too_large(f"{SPARK_RESULT_BYTES >> 20} MB")
    return arrow


def _too_large(than: str) -> SqlError:
    return SqlError(*TOO_BIG_SELECT, f"The query's answer has more than {than}; add a WHERE or a LIMIT, or write it in "
                                     "parts")


def explain(spark: SparkSession, progress: Progress = ignore_progress, *, plan: Mir) -> str:
    """Return the plan and Spark's physical plan of it, as text.  The tables are empty here."""
    spark = snapshot.session(spark)
    empty = {n: spark.createDataFrame([], coding.shown_schema(t.fields)) for n, t in tables_of(plan).items()}
    rows = lower.dataframe(plan, empty)
    physical = rows._jdf.queryExecution().explainString(  # the only way to the text without printing it
        spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("simple"))
    return f"answered by Spark over a snapshot, not maintained\n{show(plan)}\n{physical}"
