"""Loads the first rows of followed tables: Spark's tasks read ranges of the key and write them by the source "noria".

A task reads its range by one SELECT, so it sees one moment.  Ranges and tables are read at different moments, all after
the position at which the binlog is followed later.  The binlog has all changes since, and they are applied by key
(`changes.py`).  So a table equals the source's once the binlog is applied beyond the last SELECT.

Keeps true: ranges are disjoint.  One commit writes a table's rows, and only once, even if the load is repeated: the
commit is named after the follower and the table.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pymysql.cursors import SSCursor
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from noria.core.identifiers import quote_identifier
from noria.core.limits import FOLLOW_RANGE_ROWS
from noria.following import values
from noria.following.address import CannotFollow, SourceAddress
from noria.following.schema import SourceTable, sql_type
from noria.following.source import connected, refusing
from noria.following.target import TargetServer
from noria.spark.source import register
from noria.spark.source.types import arrow_schema, as_spark, schema_of

FORMAT = "noria-follow"
BATCH_ROWS = 10_000


class SourceKeyRange(InputPartition):
    """A range of the key's first column: first <= value < end; None for no bound."""

    def __init__(self, first: Any, end: Any):
        super().__init__((first, end))
        self.first, self.end = first, end


class SourceRows(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return _spark_schema(_table(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        address = SourceAddress(**json.loads(self.options["address"]))
        report = LoadReporter(self.options["url"], address.name, self.options["run"])
        return RangeReader(address, _table(self.options), report)


class LoadReporter:
    """Reports to the server how many rows a task has read.  A report that fails is dropped, and the load continues."""

    def __init__(self, url: str, name: str, run: str):
        self._whose = url, name, run

    def __call__(self, rows: int) -> None:
        with contextlib.suppress(ConnectionError, CannotFollow):
            TargetServer(*self._whose).report_progress({"loaded": rows})


def _table(options: Mapping[str, str]) -> SourceTable:
    return SourceTable.from_json(options["table"], json.loads(options["columns"]))


def _spark_schema(table: SourceTable) -> StructType:
    return schema_of([{"name": c.name, "type": sql_type(table.name, c).partition(" COLLATE")[0],
                       "nullable": c.nullable} for c in table.columns])


class RangeReader(DataSourceReader):
    def __init__(self, address: SourceAddress, table: SourceTable, report: Callable[[int], object] = lambda _: None):
        self._address, self._table, self._report = address, table, report

    def partitions(self) -> list[InputPartition]:
        connection = connected(self._address)
        try:
            with refusing(), connection.cursor() as cursor:
                bounds = [None, *_bounds(cursor, self._table), None]
        finally:
            connection.close()
        return [SourceKeyRange(a, b) for a, b in pairwise(bounds)]

    def read(self, partition: SourceKeyRange) -> Iterator[pa.RecordBatch]:
        table, schema = self._table, arrow_schema(_spark_schema(self._table))
        converts, places = [values.of_select(c) for c in table.columns], range(len(table.columns))
        connection = connected(self._address)
        try:
            with refusing(), connection.cursor(SSCursor) as cursor:
                cursor.execute(*_select(table, partition))
                while rows := cursor.fetchmany(BATCH_ROWS):
                    yield as_spark(values.arrays(table, places, rows, converts), schema)
                    self._report(len(rows))
        finally:
            connection._force_close()


def _bounds(cursor: Any, table: SourceTable) -> Iterator[Any]:
    """Yield the bounds between ranges of about FOLLOW_RANGE_ROWS rows, read from the key's index."""
    first = table.columns[table.key_places[0]]
    if first.kind in ("enum", "set"):
        return  # ORDER BY and comparisons use different orders for these types
    name, of = quote_identifier(first.name), quote_identifier(table.name)
    last = None
    while True:
        after = "" if last is None else f"WHERE {name} >= %s"
        cursor.execute(f"SELECT {name} FROM {of} {after} ORDER BY {name} LIMIT 1 OFFSET {FOLLOW_RANGE_ROWS}",
                       () if last is None else (last,))
        found = cursor.fetchone()
        if found is not None and found[0] == last:  # a whole range of rows has this value
            cursor.execute(f"SELECT MIN({name}) FROM {of} WHERE {name} > %s", (last,))
            found = cursor.fetchone()
        if found is None or found[0] is None:
            return
        last = found[0]
        yield last


def _select(table: SourceTable, part: SourceKeyRange) -> tuple[str, tuple[Any, ...]]:
    name = quote_identifier(table.columns[table.key_places[0]].name)
    bounds = [(f"{name} >= %s", part.first), (f"{name} < %s", part.end)]
    where = [(text, value) for text, value in bounds if value is not None]
    text = f"SELECT {', '.join(map(values.selected, table.columns))} FROM {quote_identifier(table.name)}"
    return text + ("" if not where else " WHERE " + " AND ".join(t for t, _ in where)), tuple(v for _, v in where)


def load(spark: SparkSession, address: SourceAddress, url: str, tables: Sequence[SourceTable], run: str) -> None:
    """Load the rows of these tables, which exist and are empty or already loaded.  run: the name of the follower's."""
    register(spark)
    spark.dataSource.register(SourceRows)
    for table in tables:
        read = spark.read.format(FORMAT).options(
            address=json.dumps(vars(address)), table=table.name, columns=json.dumps(table.as_json()), url=url,
            run=run).load()
        scope = f"follow.{address.name}.{hashlib.sha256(table.name.encode()).hexdigest()[:16]}"
        read.write.format("noria").options(url=url, table=table.name, id=scope).mode("append").save()
