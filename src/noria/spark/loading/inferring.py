"""The table that files would fit: CREATE TABLE from Parquet's types, or from what Spark infers of CSV and JSON.

Keeps true: what the statement makes takes the files' columns by name; a column that has no place in a table is refused
with its name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from noria.spark.jobs.progress import Progress, quiet, stages
from noria.spark.loading.files import BadFile, Reading, Source
from noria.spark.loading.sources import gathered
from noria.spark.loading.tasks import LoadRefused
from noria.spark.source.types import NoSuchType
from noria.spark.source.writer import created

NAMED = "give the table its columns with CREATE TABLE, and load without --create"


@dataclass(frozen=True)
class Inferred:
    """statement: that makes the table.  sources: the plain files that were looked at."""

    statement: str
    sources: tuple[Source, ...]


def infer(spark: SparkSession, progress: Progress = quiet, *, table: str, files: Sequence[str], reading: Reading,
          keys: Sequence[str], place: str) -> Inferred:
    sources = gathered(spark, progress, files, reading, place)
    with stages(spark, progress, "looking at the files"):
        schema = _schema(spark.newSession(), sources, reading, place)
    if not schema.fields:
        raise BadFile(f"{sources[0].shown}: no columns are found in it: {NAMED}")
    names = {n.lower() for n in schema.names}
    if len(names) < len(schema.names):
        raise LoadRefused(f"two columns of the files have one name ({', '.join(schema.names)}): {NAMED}")
    if missing := [k for k in keys if k.lower() not in names]:
        raise LoadRefused(f"--primary-key names '{missing[0]}', which is no column of the files: "
                          f"{', '.join(schema.names)}")
    try:
        text = created(table, schema, keys)
    except NoSuchType as e:
        raise LoadRefused(f"{e}; or {NAMED}") from e
    return Inferred(text.replace("CREATE TABLE IF NOT EXISTS", "CREATE TABLE", 1), sources)


def _schema(spark: SparkSession, sources: Sequence[Source], reading: Reading, place: str
            ) -> T.StructType:
    """Of the files of one format, what all of them have; of several formats none is right for all."""
    forms = {s.format for s in sources}
    if len(forms) > 1:
        raise LoadRefused(f"the files are of several formats ({', '.join(sorted(forms))}): {NAMED}")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")  # a text says no time zone
    paths = [_plainly_named(s.path, os.path.join(place, f"looked-at-{i}")) for i, s in enumerate(sources)]
    (form,) = forms
    try:
        if form == "parquet":
            return spark.read.option("mergeSchema", True).parquet(*paths).schema
        if form == "json":
            return spark.read.option("mode", "DROPMALFORMED").json(paths).schema
        found = spark.read.csv(paths, header=reading.header, sep=reading.delimiter, inferSchema=True, quote='"',
                               escape='"', nullValue=reading.null, multiLine=reading.multiline).schema
    except PySparkException as e:
        raise BadFile(f"{sources[0].shown}: Spark finds no columns: {str(e).splitlines()[0]}") from e
    return T.StructType([T.StructField(f.name, _of_text(f.dataType)) for f in found.fields])


def _plainly_named(path: str, link: str) -> str:
    """A link to a file: its own name may be a pattern to Spark."""
    os.makedirs(os.path.dirname(link), exist_ok=True)
    os.symlink(path, link)
    return f"file://{link}"


def _of_text(kind: T.DataType) -> T.DataType:
    """true and false are no numbers in CSV."""
    return T.StringType() if isinstance(kind, T.BooleanType) else kind
