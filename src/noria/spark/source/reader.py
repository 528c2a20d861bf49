"""Batch reads: each task reads a range of keys of one worker's rows, or a part of a query's answer, as Arrow.

All tasks of one execution read one snapshot.  They name the read by the DataFrame and Spark's number of the execution,
and the server keeps one snapshot for each name.  A task on the server's host reads the server's files itself, if it
may.  A process beside the server sends the rows to other tasks.

`pushFilters` is not used: all plans of a DataFrame would share the filters of the last one (Spark 4.3, one
PythonDataSourceV2 for each load()), and df.filter(a).union(df.filter(b)) would lose rows.  Instead, the options
"columns", "where" and "query" apply to one load(). """

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from noria import __version__
from noria.spark.source.conditions import Comparison, bounds, kept, parsed, typed
from noria.spark.source.errors import OptionError, RequestFailed, in_one_line
from noria.spark.source.types import arrow_schema, as_spark, schema_of
from noria.spark.source.wire import RequestRefused, Server

PARTITIONS = 32  # tasks of one read, by default; fewer if a task would read few rows
TRIES = 4  # in a row, of a task whose connection breaks
EXECUTION = "spark.sql.execution.id"  # a task's local property


class ReadPartition(InputPartition):
    """A task's part of a read.  request: the task's request, without the execution.  The planner decides `where` and
    `direct`; they are here because Spark copies the reader to the tasks before it plans."""

    def __init__(self, request: dict[str, Any], where: tuple[Comparison, ...], direct: bool):
        super().__init__(request)
        self.where, self.direct = where, direct


def wanted(options: Mapping[str, str]) -> dict[str, str]:
    """Return the one option that names what to read, table, view or query, and its database.  Raises OptionError."""
    named = {k: options[k] for k in ("table", "view", "query") if options.get(k)}
    if options.get("feed"):
        raise OptionError("the option \"feed\" is for spark.readStream: give \"table\" or \"view\" to read the rows")
    if len(named) != 1:
        raise OptionError("give one of the options \"table\", \"view\" and \"query\""
                         + (f", not {' and '.join(sorted(named))}" if named else ""))
    return {**named, **({"database": options["database"]} if options.get("database") else {})}


def planned(server: Server, what: Mapping[str, Any], partitions: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = server.post("/source/plan", {**what, "pieces": partitions})
    return found


def table_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of the table, view or query; with the option "columns", only of those columns."""
    schema = schema_of(planned(Server.of(options), wanted(options))["columns"])
    names = [c.strip() for c in options.get("columns", "").split(",") if c.strip()]
    return StructType([_named(schema, n) for n in names]) if names else schema


def _named(schema: StructType, name: str) -> Any:
    found = next((f for f in schema.fields if f.name.lower() == name.lower()), None)
    if found is None:
        raise OptionError(f"there is no column '{name}' to read; there are {', '.join(schema.names)}")
    return found


class NoriaReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType):
        self._server, self._schema = Server.of(options), schema
        self._what: dict[str, Any] = dict(wanted(options))
        self._partitions = _number(options, "numPartitions", PARTITIONS)
        self._direct = options.get("direct", "true").lower() != "false"
        self._where = parsed(options.get("where", ""))
        if self._where and "table" not in self._what:
            raise OptionError("the option \"where\" is for a table: write it into the query")

    @in_one_line()
    def partitions(self) -> list[InputPartition]:
        plan = planned(self._server, self._what)
        where = typed(self._where, {c["name"]: c["type"] for c in plan["columns"]})
        if where and plan["key"]:
            self._what = {**self._what, "bounds": bounds(where, plan["key"][0])}
        plan = planned(self._server, self._what, self._partitions)
        self._what.pop("bounds", None)
        there, read = [c["name"] for c in plan["columns"]], [*self._schema.names, *(c.column for c in where)]
        names = list(dict.fromkeys(_named(schema_of(plan["columns"]), n).name for n in read))
        columns = names if "table" in self._what else [there.index(n) for n in names]
        common = {**self._what, "read": uuid.uuid4().hex, "life": plan["life"], "columns": columns,
                  **({"table_id": plan["table_id"]} if "table" in self._what else {"files": len(plan["pieces"])})}
        direct = self._direct and plan["version"] == __version__ and _is_here(self._server)
        return [ReadPartition({**common, **partition}, where, direct) for partition in plan["pieces"]]

    def read(self, partition: ReadPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        execution = context.getLocalProperty(EXECUTION) if context is not None else None
        request = {**partition.value, "read": f"{partition.value['read']}.{execution or 'rdd'}"}
        with in_one_line():
            yield from self._converted(request, partition)

    def _converted(self, request: dict[str, Any], partition: ReadPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        try:
            for batch in self._rows(request, partition.direct):
                some = kept(batch, partition.where) if partition.where else batch
                yield as_spark(some.columns[: len(schema)], schema)
        except RequestRefused as e:
            raise RequestFailed(f"noria: {e}") from e

    def _rows(self, request: dict[str, Any], direct: bool) -> Iterator[pa.RecordBatch]:
        if direct:
            lines = self._server.lines("/source/held", request)  # the server keeps the snapshot until this closes
            try:
                place = next(lines)
                if os.access(place.get("checkpoint") or place.get("parquet") or "", os.R_OK):
                    yield from _read_here(place)
                    return
            finally:
                lines.close()
        yield from self._streamed(request)

    def _streamed(self, request: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Read over HTTP.  If the connection breaks, continue at the next row.  Raises Failed after TRIES failures."""
        done = tries = 0
        while True:
            try:
                for batch in self._server.stream("POST", "/source/rows", {**request, "skip": done}):
                    yield batch
                    done += batch.num_rows
                    tries = 0
                return
            except (OSError, EOFError, pa.ArrowInvalid) as e:
                tries += 1
                if tries == TRIES:
                    raise RequestFailed(f"noria: the rows from {self._server.url} broke off {TRIES} times: {e}") from e


def _read_here(place: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    from noria.storage.offline.scanning import batches

    yield from batches(place)[1]


def _is_here(server: Server) -> bool:
    """Whether the server is on this host."""
    host = urlsplit(server.url).hostname or ""
    return host in ("127.0.0.1", "localhost", "::1") or host == socket.gethostname()


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    value = options.get(name, str(default))
    if not value.isdigit() or int(value) < 1:
        raise OptionError(f"the option \"{name}\" is '{value}': give a number from 1")
    return int(value)
