"""All rows of a table into another one, whose keys have other columns in common: so each may be another worker's.

Keeps true: a page is one statement, whole or not at all; no more than one is in memory.  The table is not written
meanwhile.  A new column that numbers the rows is left out: it is numbered as in any INSERT.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from noria.core.errors import SqlError
from noria.core.limits import COPIED_ROWS
from noria.core.statements import Insert
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Done, Packet, Page, Write, Wrote


class Asked(Protocol):
    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


async def copy_rows(links: Sequence[Asked], change: Callable[[Write], Awaitable[Wrote]], table: TableDef,
                    other: TableDef) -> None:
    """SqlError for a row that does not fit: as many rows as were copied until then are there."""
    columns = tuple(c for c in other.shown if c != other.numbered(table))
    for link in links:
        after: bytes | None = None
        while True:
            page: Done = await link.ask(Page(0, table.name, after, COPIED_ROWS), True)
            if page.error is not None:
                raise page.error
            rows, after = page.value
            if rows.num_rows:
                values = _as_they_will_be(rows, table, other, columns)
                wrote = await change(Write((Insert(other.name, columns, values),)))
                if (error := wrote.results[0].error) is not None:
                    raise _told(error)
            if after is None:
                break


def _as_they_will_be(rows: pa.RecordBatch, table: TableDef, other: TableDef, columns: Sequence[int]) -> Any:
    """Of these columns of the other table: as they are, from the column that one was made of, or what rows have that
    were there before it was."""
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


def _told(error: SqlError) -> SqlError:
    """NULL is told as ALTER TABLE tells it."""
    return SqlError(1138, "22004", f"Invalid use of NULL value: {error.message}") if error.code == 1048 else error
