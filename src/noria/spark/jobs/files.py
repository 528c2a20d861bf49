"""Exports a query's rows over a snapshot as Parquet, CSV or JSON lines.  `noria load` can read the files.

    NULL        in CSV the field \\N without quotes; an empty text is "", and the text \\N is "\\N"
    TIME        a text, HH:MM:SS.ffffff; dates and times in SQL's format, in UTC
    bytes       in Parquet only

CSV is written here, not by Spark: Spark writes NULL and a quoted text alike.

Keeps true: the files hold the plan's rows, once.  A task that ran twice leaves no further file.  A row with an
evaluation error fails the job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, Observation, SparkSession

from noria.core.errors import SqlError
from noria.core.errors.codes import DUP_FIELDNAME, NOT_SUPPORTED_YET
from noria.core.types import Field, Kind, TableDef
from noria.plan.mir import Mir, tables_of
from noria.plan.optimizer import error_reporting_plan
from noria.spark.jobs import snapshot
from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.lowering import coding, lower
from noria.spark.source.types import spark_type

NULL = "\\N"
_TEXTS = (Kind.TEXT, Kind.ENUM, Kind.SET)
_SECOND_US, _MINUTE_US, _HOUR_US = 10**6, 60 * 10**6, 3600 * 10**6
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Written:
    """The result of `write`.  multiline: some texts in the CSV files have line ends."""

    rows: int
    files: int
    multiline: bool = False


def write(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, tables: Sequence[TableDef],
          plan: Mir, visible: int, format: str, out: str) -> Written:
    """Write the plan's rows to files in the new directory `out`.  Raises SqlError 1060 for two columns of one name, and
    1235 for bytes in CSV or JSON.  visible: the number of leading columns.  format: parquet, csv or json."""
    fields = plan.fields[:visible]
    _check(fields, format)
    spark = snapshot.session(spark)
    needed = tables_of(plan)
    base = snapshot.tables(spark, checkpoint, [t for t in tables if t.name in needed])
    rows = lower.dataframe(error_reporting_plan(plan), base)
    with stages(spark, progress, f"writing {format}"):
        return _csv(rows, fields, out) if format == "csv" else _by_spark(rows, fields, format, out)


def _check(fields: Sequence[Field], format: str) -> None:
    names = [f.name.lower() for f in fields]
    if twice := next((f.name for f in fields if names.count(f.name.lower()) > 1), ""):
        raise SqlError(*DUP_FIELDNAME, f"two columns are called '{twice}': name them apart with AS")
    bytes_ = next((f.name for f in fields if f.type.is_bytes), "")
    if bytes_ and format != "parquet":
        raise SqlError(*NOT_SUPPORTED_YET, f"the column '{bytes_}' has bytes, which {format} has no place for: export "
                                           "parquet, or a query with HEX() of it")


# ------------------------------------------------------------------ Parquet and JSON
def _by_spark(rows: DataFrame, fields: Sequence[Field], format: str, out: str) -> Written:
    counted = Observation()
    shown = rows.select(*[_plain(i, f, format).alias(f.name) for i, f in enumerate(fields)])
    observed = shown.observe(counted, F.count(F.lit(1)).alias("rows"))
    observed.write.format(format).option("ignoreNullFields", False).save(out)
    for name in os.listdir(out):
        if name.startswith("."):  # Hadoop's checksums
            os.unlink(os.path.join(out, name))
    return Written(counted.get["rows"], sum(n.startswith("part-") for n in os.listdir(out)))


def _plain(number: int, field: Field, format: str) -> Column:
    """Convert a shown column to the Spark type of its SQL type, or to a text if the format needs one."""
    column = F.col(f"c{number}")
    if field.type.kind is Kind.TIME:
        return _clock(coding.to_code(column, field.type))
    if field.type.kind is Kind.DATETIME:  # Spark's JSON has milliseconds only
        return column.cast("string") if format == "json" else column
    return column.cast(spark_type(field.type.sql(), field.name))


def _clock(micros: Column) -> Column:
    size = F.abs(micros)
    parts = [F.floor(size / F.lit(_HOUR_US)), F.floor(size % F.lit(_HOUR_US) / F.lit(_MINUTE_US)),
             F.floor(size % F.lit(_MINUTE_US) / F.lit(_SECOND_US)), size % F.lit(_SECOND_US)]
    sign = F.when(micros < 0, "-").otherwise("")
    return F.when(micros.isNotNull(), F.format_string("%s%02d:%02d:%02d.%06d", sign, *parts))


# ------------------------------------------------------------------ CSV
def _csv(rows: DataFrame, fields: Sequence[Field], out: str) -> Written:
    texts = [F.coalesce(_csv_field(_plain(i, f, "csv"), f), F.lit(NULL)) for i, f in enumerate(fields)]
    line = F.concat(F.concat_ws(",", *texts), F.lit("\n")).alias("line")
    os.makedirs(out)
    task = _WriteLines(out, ",".join(_quoted(f.name) for f in fields) + "\n")
    made = rows.select(line).mapInArrow(task, "path string, rows bigint, multiline boolean").collect()
    for n, r in enumerate(made):
        os.rename(r["path"], os.path.join(out, f"part-{n:05}.csv"))
    for name in os.listdir(out):
        if name.endswith(".attempt"):  # left by a task that was repeated
            os.unlink(os.path.join(out, name))
    if not made:
        with open(os.path.join(out, "part-00000.csv"), "w", encoding="utf-8") as file:
            file.write(task.header)
    return Written(sum(r["rows"] for r in made), max(len(made), 1), any(r["multiline"] for r in made))


def _csv_field(column: Column, field: Field) -> Column:
    if field.type.declared == "year":  # a YEAR reads the text 0 as 2000, but 0000 as 0
        return F.lpad(column.cast("string"), 4, "0")
    if field.type.kind not in _TEXTS:
        return column.cast("string")
    return F.concat(F.lit('"'), F.replace(column, F.lit('"'), F.lit('""')), F.lit('"'))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class _WriteLines:
    """A task that writes its lines to a file of this attempt.  The file's bytes are Arrow's buffer of the texts."""

    out: str
    header: str

    def __call__(self, batches: Batches) -> Batches:
        context = TaskContext.get()
        path = os.path.join(self.out, f"{context.partitionId()}-{context.taskAttemptId()}.attempt")
        rows, ends = 0, 0
        with open(path, "wb") as out:
            out.write(self.header.encode())
            for batch in batches:
                data = _bytes(batch.column(0))
                rows, ends = rows + batch.num_rows, ends + data.count(b"\n") + data.count(b"\r")
                out.write(data)
        if rows:
            yield pa.record_batch([pa.array([path]), pa.array([rows]), pa.array([ends > rows])],
                                  names=["path", "rows", "multiline"])


def _bytes(lines: pa.Array) -> bytes:
    """Return the concatenated texts of an array."""
    texts = lines.cast(pa.large_string())
    _, places, data = texts.buffers()
    if not len(texts) or data is None:
        return b""
    ends = pa.Array.from_buffers(pa.int64(), len(texts) + 1, [None, places], offset=texts.offset)
    found: bytes = data.slice(ends[0].as_py(), ends[-1].as_py() - ends[0].as_py()).to_pybytes()
    return found
