"""The data source that Spark knows as "noria": who makes readers and writers of the options."""

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

from noria.spark.source.reader import NoriaReader, table_schema
from noria.spark.source.stream import NoriaStreamReader, stream_schema
from noria.spark.source.writer import NoriaStreamWriter, NoriaWriter


class NoriaDataSource(DataSource):  # type: ignore[misc]
    """Spark asks for the columns in the same way for a read and for a stream; so a stream has an option of its own,
    "feed"."""

    @classmethod
    def name(cls) -> str:
        return "noria"

    def schema(self) -> StructType:
        return stream_schema(self.options) if self.options.get("feed") else table_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return NoriaReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NoriaStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return NoriaWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return NoriaStreamWriter(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Make the format "noria" known to a session, and the session this thread's: a stream's sink is looked for in the
    session that the thread is at (a new thread is at none), not in the stream's own."""
    spark.dataSource.register(NoriaDataSource)
    if hasattr(spark, "_jsparkSession"):  # not of a session by Spark Connect
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
