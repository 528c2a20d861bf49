"""Runs LOAD DATA LOCAL INFILE: the rows of the file are one INSERT, within the transaction or as one of its own.

Keeps true: as in MySQL, LOCAL is as lenient as IGNORE: a row whose key is taken is left out, and a value that does not
fit is changed.  With REPLACE it is as strict as the session.  For fields that a line lacks, a column that may have NULL
has it, unless it has a default; others have their implicit default.  Fields beyond the columns are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from noria.core.errors import SqlError, no_table, not_supported, unknown_column
from noria.core.errors.codes import (
    INVALID_CHARACTER_STRING,
    LOCAL_FILES_DISABLED,
    WARN_TOO_FEW_RECORDS,
    WARN_TOO_MANY_RECORDS,
)
from noria.core.expressions.lenient import implicit
from noria.core.statements import Insert
from noria.core.types import Column, Field, TableDef
from noria.server.outcomes import Answer, Outcome, ResultSet
from noria.server.sessions import writes
from noria.server.sessions.context import SessionContext
from noria.server.sessions.modes.lenient_writes import Warnings
from noria.sql import commands as sql
from noria.sql.statements.writing.delimited import rows_of

FILE_ROWS = 1_000_000  # of one file: a file of newlines would fill the memory


async def with_file(session: SessionContext, run: Callable[[str, bool], Awaitable[Answer]], text: str, data: bytes
                    ) -> Answer:
    """Run a statement for which the client has sent a file.  run: runs a text."""
    session.local_file = data
    try:
        return await run(text, False)
    finally:
        session.local_file = None


async def load(session: SessionContext, command: sql.LoadData) -> Outcome:
    """Insert the rows of the session's file."""
    if session.local_file is None:
        raise SqlError(*LOCAL_FILES_DISABLED, "Loading local data is disabled; this must be enabled on both the client "
                                              "and server sides")
    if session.temporary.find(command.table) is not None:
        raise not_supported("LOAD DATA into a temporary table", "INSERT the rows")
    table = session.executor.program.table(command.table)
    if table is None:
        raise no_table(command.table, session.executor.program.view(command.table) is not None)
    places, columns = _columns(table, command.columns)
    absent = [_absent(table.columns[c]) for c in columns]
    rows, warned = await asyncio.to_thread(_rows, session.local_file, command, places, absent)
    lenient = command.on_duplicate == "ignore"
    if warned.number and session.mode.strict and not lenient:
        raise warned.first[0]
    found = ResultSet([Field(table.columns[c].name, table.columns[c].type) for c in columns], rows)
    write = sql.SelectedWrite((), Insert(table.name, columns, (), command.on_duplicate), ignore=lenient)
    done = await writes.run_found(session, write, found, warned)
    skipped = len(rows) - done.affected if lenient else 0
    deleted = 0 if lenient else done.affected - len(rows)
    info = f"Records: {len(rows)}  Deleted: {deleted}  Skipped: {skipped}  Warnings: {warned.number}"
    return replace(done, info=info)


def _columns(table: TableDef, names: Sequence[str] | None) -> tuple[tuple[int | None, ...], tuple[int, ...]]:
    """For each field of a line its place in a row, None if it is skipped; and the columns of a row."""
    if names is None:
        return tuple(range(len(table.writable))), table.writable
    columns: list[int] = []
    places: list[int | None] = []
    for name in names:
        places.append(len(columns) if name else None)
        if name:
            try:
                columns.append(table.position(name))
            except KeyError:
                raise unknown_column(name, "field list") from None
    return tuple(places), tuple(columns)


def _absent(column: Column) -> Any:
    """The value for a field that a line lacks."""
    return None if column.auto_increment or (column.nullable and column.default is None) else implicit(column)


def _rows(data: bytes, command: sql.LoadData, places: Sequence[int | None], absent: Sequence[Any]
          ) -> tuple[list[tuple[Any, ...]], Warnings]:
    """The rows of the file, and the warnings of lines with too few or too many fields.  Raises SqlError for more than
    FILE_ROWS."""
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        shown = "".join(f"\\x{b:02X}" for b in data[e.start : e.start + 6])
        raise SqlError(*INVALID_CHARACTER_STRING, f"Invalid utf8mb4 character string: '{shown}'") from None
    width, in_order = len(absent), list(places) == list(range(len(absent)))
    rows: list[tuple[Any, ...]] = []
    warned = Warnings()
    for number, fields in enumerate(rows_of(text, command.form, command.skipped), 1):
        if number > FILE_ROWS:
            raise not_supported(f"LOAD DATA LOCAL of more than {FILE_ROWS:,} rows", "use `noria load`")
        if len(fields) != len(places):
            few = len(fields) < len(places)
            warned.add(SqlError(*(WARN_TOO_FEW_RECORDS if few else WARN_TOO_MANY_RECORDS),
                                f"Row {number} doesn't contain data for all columns" if few else
                                f"Row {number} was truncated; it contained more data than there were input columns"))
        if in_order and len(fields) == width:
            rows.append(fields)
            continue
        row = list(absent)
        for place, value in zip(places, fields, strict=False):
            if place is not None:
                row[place] = value
        rows.append(tuple(row))
    return rows, warned


__all__ = ["load", "with_file"]
