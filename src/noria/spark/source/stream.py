"""Reads the change feed of a table or a view as a stream: rows with _sign, _watermark and _time.

An offset is {"at": watermark}.  The offset "" is before the first row: the first batch of a stream from the start has
all rows as of its end.  A batch has the changes in (start, end].  Every read of a batch returns the same, while the
server keeps its changes.

Keeps true: all offsets are watermarks of the feed.  If the server no longer keeps a batch's changes, the read fails and
says so.  With "failOnDataLoss" false, it returns all rows as of the batch's end instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from noria.spark.source.errors import OptionError, RequestFailed, in_one_line
from noria.spark.source.types import arrow_schema, as_spark, schema_of
from noria.spark.source.wire import RequestRefused, Server
from noria.sql.text.databases import named_in

GONE = 410
MARKS = [T.StructField("_sign", T.LongType(), False), T.StructField("_watermark", T.StringType(), False),
         T.StructField("_time", T.TimestampType(), False)]


def feed_of(server: Server, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"/views/{quote(name, safe='')}/feed")
    return found


def _name(options: Mapping[str, str]) -> str:
    """Return the table or view whose changes are read.  Raises OptionError."""
    name = options.get("feed", "")
    if not name:
        raise OptionError("the option \"feed\" is missing: the name of the table or view whose changes are to be "
                         "read; for a "
                         "query create a view of it")
    return named_in(options.get("database", ""), name)


def stream_schema(options: Mapping[str, str]) -> StructType:
    columns = schema_of(feed_of(Server.of(options), _name(options))["columns"])
    return StructType([T.StructField(f.name, f.dataType, True) for f in columns.fields] + MARKS)


class ChangeBatch(InputPartition):
    """A batch: the changes in (after, until].  With after "", all rows as of `until`."""

    def __init__(self, after: str, until: str):
        super().__init__((after, until))
        self.after, self.until = after, until


class NoriaStreamReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str], schema: StructType):
        self._server, self._name, self._schema = Server.of(options), _name(options), schema
        self._from = options.get("startingOffsets", "earliest")
        self._strict = options.get("failOnDataLoss", "true").lower() != "false"

    @in_one_line()
    def initialOffset(self) -> dict[str, str]:
        if self._from == "earliest":
            return {"at": ""}
        return {"at": self._newest() if self._from == "latest" else self._from}

    @in_one_line()
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:
        return {"at": self._newest()}

    def _newest(self) -> str:
        return str(feed_of(self._server, self._name)["newest"])

    @in_one_line()
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        after, until = start["at"], end["at"]
        if after == until:
            return []
        if after and not self._strict and self._is_lost(after):
            after = ""
        return [ChangeBatch(after, until)]

    def _is_lost(self, after: str) -> bool:
        try:
            for _ in self._changes(after, after):
                pass
        except RequestRefused as e:
            if e.status != GONE:
                raise
            return True
        return False

    def _changes(self, after: str, until: str) -> Iterator[pa.RecordBatch]:
        place, form = f"/views/{quote(self._name, safe='')}", {"format": "arrow"}
        if after:
            return self._server.stream("GET", f"{place}/changes?{urlencode({'after': after, 'until': until, **form})}")
        return self._server.stream("GET", f"{place}/rows?{urlencode({'at': until, **form})}")

    def read(self, partition: ChangeBatch) -> Iterator[pa.RecordBatch]:
        with in_one_line():
            yield from self._converted(partition)

    def _converted(self, partition: ChangeBatch) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        try:
            for batch in self._changes(partition.after, partition.until):
                yield as_spark(batch.select(self._schema.names).columns, schema)
        except RequestRefused as e:
            raise RequestFailed(f"noria: {e}" + (_advice(partition) if e.status == GONE else "")) from e

    def commit(self, end: dict[str, str]) -> None:
        """Do nothing: how long the server keeps changes does not depend on its readers."""

    def stop(self) -> None:
        """Do nothing: the reader holds no resources."""


def _advice(partition: ChangeBatch) -> str:
    if not partition.after:
        return (". The stream could not begin in time with the content as of that moment: begin it anew with another "
                "checkpoint "
                "location")
    return (f". What came after {partition.after} is lost to this stream: give the option failOnDataLoss=false, and "
            f"the whole "
            "content comes again in its place (as rows with _sign 1), or begin anew with another checkpoint location "
            "and "
            "startingOffsets=earliest or latest")
