"""Batch and stream writes: tasks stage their rows at the server, and the driver commits them.

A task may run twice, even at the same time.  Each run stages its own parts, and Spark passes the driver the parts of
one run of each task.  A commit has a scope and a number, and the server executes it once, even if it is repeated.  A
batch write has its own name and 0; a stream has its query's id and the batch's number.  Spark may replace a
stream's writer in the driver, so the tasks' messages name the parts that they staged, and the write.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from noria.core.identifiers import quote_identifier
from noria.spark.source.errors import OptionError, RequestFailed, Unreachable, in_one_line
from noria.spark.source.types import as_sent, check_written, sql_type
from noria.spark.source.wire import RequestRefused, Server
from noria.sql.text.databases import named_in

PART_ROWS, PART_BYTES = 100_000, 8 * 2**20  # of one part, before Parquet compresses it
COMMIT_TRIES = 10  # if the server does not answer: it may be restarting
COMMIT_WAIT_S = 3.0
QUERY = "sql.streaming.queryId"  # a task's local property
ON = {"error": "error", "ignore": "ignore", "replace": "replace", "upsert": "update", "delete": "delete"}


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The parts that a task staged, and for which write.  query: the id of a stream's query."""

    parts: tuple[str, ...]
    write: str
    query: str = ""


class Sink:
    """The part that batch and stream writes share."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool):
        self._server, self._schema, self._overwrite = Server.of(options), schema, overwrite
        self._id, self._scope = uuid.uuid4().hex, options.get("id", "")
        if not options.get("table"):
            raise OptionError("the option \"table\" is missing: the table to write to")
        database, table = options.get("database", ""), options["table"]
        if not database and "." in table:
            database, _, table = table.partition(".")
        self._table = named_in(database, table)
        mode = options.get("onDuplicate", "error").lower()
        if mode not in ON:
            raise OptionError(f"the option \"onDuplicate\" is '{mode}': give one of {', '.join(ON)}")
        self._on = ON[mode]
        self._rejects = options.get("maxRejects")
        if self._rejects is not None and not self._rejects.isdigit():
            raise OptionError(f"the option \"maxRejects\" is '{self._rejects}': give a number from 0")
        check_written(schema)
        self._create, self._idle = self._find(options)

    def _find(self, options: Mapping[str, str]) -> tuple[str, bool]:
        """Return the statement that makes a missing table, else "", and whether to skip the write as the table exists.
        """
        exists = options.get("ifExists", "write").lower()
        if exists not in ("write", "error", "ignore"):
            raise OptionError(f"the option \"ifExists\" is '{exists}': give write, error or ignore")
        try:
            self._server.get(f"/tables/{quote(self._table, safe='')}")
        except RequestRefused as e:
            if e.status != 404:
                raise
            keys = [k.strip() for k in options.get("primaryKey", "").split(",") if k.strip()]
            return created(self._table, self._schema, keys), False
        if exists == "error":
            raise OptionError(f"the table {self._table} is there already, and the option \"ifExists\" says error")
        return "", exists == "ignore"

    # ------------------------------------------------------------ tasks
    def staged(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY) if context is not None else None
        parts: list[str] = []
        kept: list[pa.RecordBatch] = []
        for batch in batches:
            if self._idle or not batch.num_rows:
                continue
            kept.append(as_sent(batch))
            if sum(b.num_rows for b in kept) >= PART_ROWS or sum(b.nbytes for b in kept) >= PART_BYTES:
                parts.append(self._sent(kept))
                kept = []
        if kept:
            parts.append(self._sent(kept))
        return Staged(tuple(parts), self._id, query or "")

    def _sent(self, batches: Sequence[pa.RecordBatch]) -> str:
        out = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches(batches), out, compression="snappy")
        try:
            return str(self._server.send(f"/source/writes/{self._id}/parts", out.getvalue().to_pybytes())["part"])
        except RequestRefused as e:
            raise RequestFailed(f"noria: {e}") from e

    # ------------------------------------------------------------ the driver
    def done(self, messages: Sequence[Staged | None], batch: int, scope: str) -> dict[str, Any]:
        if self._idle:
            return {"rows": 0, "rejected": 0}
        request = {"table": self._table, "parts": [p for m in messages if m is not None for p in m.parts],
                   "on": self._on,
                   "overwrite": self._overwrite, "batch": batch, "scope": scope,
                   **({} if self._rejects is None else {"max_rejects": int(self._rejects)})}
        try:
            if self._create:
                self._server.post("/sql", {"sql": self._create})
            write = next((m.write for m in messages if m is not None and m.parts), self._id)
            return self._committed(write, request)
        except RequestRefused as e:
            raise RequestFailed(f"noria: nothing was written to {self._table}: {e}") from e

    def _committed(self, write: str, request: dict[str, Any]) -> dict[str, Any]:
        """Commit, and return the server's result.  Without an answer, try again: the server commits once."""
        for attempt in range(1, COMMIT_TRIES + 1):
            try:
                last: dict[str, Any] = {}
                for step in self._server.lines(f"/source/writes/{write}/commit", request):
                    last = step
                if "rows" in last:
                    return last
                problem: Exception = ConnectionError("the answer broke off")
            except OSError as e:
                problem = e
            if attempt < COMMIT_TRIES:
                time.sleep(COMMIT_WAIT_S)
        raise Unreachable(f"noria: whether {self._table} was written is not known, since the server does not "
                              f"answer: "
                              f"{problem}") from problem

    def dropped(self) -> None:
        self._server.post(f"/source/writes/{self._id}/drop", {})


def created(table: str, schema: StructType, keys: Sequence[str]) -> str:
    """Return a CREATE TABLE for a DataFrame's columns.  Raises OptionError for an unknown key, NoSuchType."""
    if missing := [k for k in keys if k.lower() not in {n.lower() for n in schema.names}]:
        raise OptionError(f"the option \"primaryKey\" names '{missing[0]}', which is no column: "
                         f"{', '.join(schema.names)}")
    lower = {k.lower() for k in keys}
    columns = [f"{quote_identifier(f.name)} {sql_type(f, f.name.lower() in lower)}"
               + ("" if f.nullable and f.name.lower() not in lower else " NOT NULL") for f in schema.fields]
    if keys:
        columns.append(f"PRIMARY KEY ({', '.join(map(quote_identifier, keys))})")
    named = table if table.startswith("`") else quote_identifier(table)
    return f"CREATE TABLE IF NOT EXISTS {named} ({', '.join(columns)})"


class _Staging:
    """The tasks' part of a writer."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool):
        self._sink = Sink(options, schema, overwrite)

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._sink.staged(iterator)


class NoriaWriter(_Staging, DataSourceArrowWriter):
    @in_one_line()
    def commit(self, messages: list[Staged | None]) -> None:
        self._sink.done(messages, 0, self._sink._scope or self._sink._id)
        self._sink.dropped()

    def abort(self, messages: list[Staged | None]) -> None:
        self._sink.dropped()


class NoriaStreamWriter(_Staging, DataSourceStreamArrowWriter):
    """Writes a stream.  overwrite: the output mode is complete, so each batch replaces all rows."""

    @in_one_line()
    def commit(self, messages: list[Staged | None], batchId: int) -> None:
        scope = self._sink._scope or next((m.query for m in messages if m is not None and m.query), "")
        if scope:  # without one, no task ran and there are no rows
            self._sink.done(messages, batchId, scope)

    def abort(self, messages: list[Staged | None], batchId: int) -> None:
        """Do nothing: the server drops the staged parts after a time, and the batch's next attempt stages its own."""
