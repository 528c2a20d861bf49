"""Copies all rows of a table into one with other keys, by which rows may belong to other workers. Call `copy_rows`.

Keeps true: a page of rows is one atomic statement, and only one page is in memory. The table is not written meanwhile.
A new AUTO_INCREMENT column is left out, so that each INSERT numbers its rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from noria.core.errors import SqlError
from noria.core.errors.codes import BAD_NULL, INVALID_USE_OF_NULL
from noria.core.limits import COPIED_ROWS
from noria.core.statements import Insert
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Done, Packet, ReadPage, Write, Wrote


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
