"""Blocks other writes of a table while one caller writes it or copies its rows. Call `ExclusiveWrites.unwritten` or
`copied`.

Keeps true: no write of the table is under way when the context begins, and none begins before it ends. A copy goes
to a table with other keys, by which rows may belong to other workers. A page of rows is one atomic statement, and only
one page is in memory. A new AUTO_INCREMENT column is left out, so that each INSERT numbers its rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pyarrow as pa

from noria.core.errors import SqlError
from noria.core.errors.codes import BAD_NULL, INVALID_USE_OF_NULL
from noria.core.limits import COPIED_ROWS
from noria.core.statements import Insert, Move
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Done, Packet, ReadPage, Write, Wrote
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.pending_changes import PendingChanges
from noria.runtime.cluster.program_state import ProgramState
from noria.runtime.link.change_queue import Change
from noria.runtime.link.one_worker_link import ExclusiveWriter
from noria.runtime.link.pauses import Pauses
from noria.runtime.transactions.read_your_writes import ReadYourWrites

Begin = Callable[[Change, asyncio.Future[Any]], None]


class PastPauses:
    """An `ExclusiveWriter`: writes past the pause of its table."""

    def __init__(self, begin: Begin, moved: Callable[[Mapping[int, Move]], asyncio.Future[Any]]):
        self._begin, self.moved = begin, moved

    def submit(self, body: Change) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._begin(body, future)
        return future


class ExclusiveWrites:
    """Pauses the writes of one table. `past`: writes it nevertheless. `submit`: writes other tables."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState, read_your_writes: ReadYourWrites,
                 pauses: Pauses,
                 pending: PendingChanges, past: PastPauses, submit: Callable[[Change], asyncio.Future[Any]]):
        self._links, self._program, self._read_your_writes = links, program, read_your_writes
        self._pauses, self._pending, self._past, self._submit = pauses, pending, past, submit

    @asynccontextmanager
    async def unwritten(self, table: str) -> AsyncIterator[ExclusiveWriter]:
        """See `Link.unwritten`."""
        with self._pauses.of(table):
            if waited := self._pending.under_way():
                await asyncio.wait(waited)
            yield self._past

    @asynccontextmanager
    async def copied(self, table: TableDef, other: TableDef) -> AsyncIterator[None]:
        """Copy all rows of the table into the other one and the states that derive from it. Nobody writes the
        table until the context ends. SqlError if a row does not fit."""
        async with self.unwritten(table.name):
            await copy_rows(self._links, self._submit, table, other)
            await self._read_your_writes.catch_up({}, self._program.routes.depth, range(len(self._links)))
            yield


class WorkerQuestions(Protocol):
    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


async def copy_rows(links: Sequence[WorkerQuestions], change: Callable[[Write], Awaitable[Wrote]], table: TableDef,
                    other: TableDef) -> None:
    """Copy the rows. SqlError for a row that does not fit; the rows copied so far remain in the other table."""
    columns = tuple(c for c in other.writable if c != other.numbered(table))
    for link in links:
        after: bytes | None = None
        while True:
            page: Done = await link.ask(ReadPage(0, table.name, after, COPIED_ROWS), True)
            rows, after = page.result()
            if rows.num_rows:
                values = _as_they_will_be(rows, table, other, columns)
                wrote = await change(Write((Insert(other.name, columns, values),)))
                if (error := wrote.results[0].error) is not None:
                    raise _as_alter_table_error(error)
            if after is None:
                break


def _as_they_will_be(rows: pa.RecordBatch, table: TableDef, other: TableDef, columns: Sequence[int]) -> Any:
    """The values of these columns of the other table: unchanged, from the column they derive from, or the initial
    value of a new column."""
    at = {c: n for n, c in enumerate(table.shown)}
    if set(columns) <= set(at):
        return pa.RecordBatch.from_arrays([rows.column(at[c]) for c in columns],
                                          names=[other.columns[c].name for c in columns])
    values = []
    for c in columns:
        column = other.columns[c]
        source = c if c in at else column.source
        values.append([column.initial] * rows.num_rows if source is None else rows.column(at[source]).to_pylist())
    return list(zip(*values, strict=True))


def _as_alter_table_error(error: SqlError) -> SqlError:
    """The error with which ALTER TABLE reports this one: NULL errors have another code."""
    return SqlError(*INVALID_USE_OF_NULL,
                    f"Invalid use of NULL value: {error.message}") if error.code == BAD_NULL.number else error
