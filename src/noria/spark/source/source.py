"""Spark's data source "noria": it checks the options, and makes readers and writers."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from noria.spark.source.errors import READ, STREAM_READ, STREAM_WRITE, WRITE, check_options, in_one_line
from noria.spark.source.python import use_python
from noria.spark.source.reader import NoriaReader, table_schema
from noria.spark.source.stream import NoriaStreamReader, stream_schema
from noria.spark.source.writer import NoriaStreamWriter, NoriaWriter


class NoriaDataSource(DataSource):
    """The data source.  Spark calls `schema` alike for a read and for a stream; the option "feed" marks a stream."""

    @classmethod
    def name(cls) -> str:
        return "noria"

    @in_one_line()
    def schema(self) -> StructType:
        if self.options.get("feed"):
            check_options(self.options, STREAM_READ, "a stream of noria")
            return stream_schema(self.options)
        check_options(self.options, (*READ, "feed"), "a read of noria")
        return table_schema(self.options)

    @in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        check_options(self.options, (*READ, "feed"), "a read of noria")
        return NoriaReader(self.options, schema)

    @in_one_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_options(self.options, STREAM_READ, "a stream of noria")
        return NoriaStreamReader(self.options, schema)

    @in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        check_options(self.options, WRITE, "a write of noria")
        return NoriaWriter(self.options, schema, overwrite)

    @in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        check_options(self.options, STREAM_WRITE, "a stream into noria")
        return NoriaStreamWriter(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Register the format "noria" in a session, and make the session this thread's active one.

    Spark looks a stream's sink up in the thread's active session, not in the stream's own; a new thread has none.
    Raises RuntimeError if Spark would start a Python without this package."""
    is_classic = hasattr(spark, "_jsparkSession")  # not a session of Spark Connect
    if is_classic:
        use_python(spark.sparkContext)
    spark.dataSource.register(NoriaDataSource)
    if is_classic:
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
