"""Replaces the clock in a write by one moment, so that no worker reads a clock.

NOW() in a write, DEFAULT CURRENT_TIMESTAMP and ON UPDATE CURRENT_TIMESTAMP become values here.  Keeps true: a worker
receives no clock function.  If an UPDATE does not change a row, its ON UPDATE column keeps its value, too.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from noria.core.errors import division_by_zero
from noria.core.expressions.coerce import coerce
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Col, Const, Expr
from noria.core.expressions.functions import at_time, call, cast, cut, zero_divisors
from noria.core.statements import DEFAULT, ClientWrite, Delete, Insert, Update
from noria.core.types import Column, TableDef
from noria.core.values import arrow_type
from noria.server.answering import time_zone
from noria.storage.tables.computed import time_default

Assignments = tuple[tuple[int, Expr], ...]


def needs(statement: ClientWrite, table: TableDef, offset: timedelta) -> bool:
    """True if the statement depends on the clock or on a time zone."""
    return statement.clock or any(c.takes_time or c.update_now or (offset and c.type.timestamp)
                                  for c in table.columns)


def timed(statement: ClientWrite, table: TableDef, utc: datetime, offset: timedelta = timedelta()) -> ClientWrite:
    """Return the statement at this time.  utc: the time in UTC; offset: how far the session's clock is ahead of UTC.
    Raises SqlError if the statement computes with a TIMESTAMP and `offset` is not zero."""
    offset = time_zone.at_moment(offset, utc)
    if isinstance(statement, Insert):
        return _insert(statement, table, utc, offset)
    where = None if statement.where is None else at_time(statement.where, utc, offset)
    if offset:
        time_zone.refuse_computing(where)
    if isinstance(statement, Delete):
        return Delete(statement.table, where)
    return Update(statement.table, _assigned(statement.assignments, table, utc, offset), where)


def _insert(statement: Insert, table: TableDef, utc: datetime, offset: timedelta) -> Insert:
    rows, columns = statement.rows, statement.columns
    if statement.clock:
        rows = tuple([tuple([_computed(at_time(v, utc, offset)) if isinstance(v, Expr) else v for v in row])
                      for row in rows])
    stamps = [n for n, i in enumerate(columns) if table.columns[i].type.timestamp] if offset else []
    if stamps and not isinstance(rows, (pa.RecordBatch, pa.Table)):  # Arrow's moments are in UTC
        rows = tuple([tuple([time_zone.to_utc(v, offset) if n in stamps and v is not DEFAULT else v
                             for n, v in enumerate(row)]) for row in rows])
    absent = [i for i, c in enumerate(table.columns) if c.takes_time and i not in columns]
    listed = {n: table.columns[i] for n, i in enumerate(columns) if table.columns[i].takes_time}
    more = tuple(_default(table.columns[i], utc, offset) for i in absent)
    if isinstance(rows, (pa.RecordBatch, pa.Table)):
        types = [arrow_type(table.columns[i].type) for i in absent]
        times = [pa.array([m] * len(rows), type) for m, type in zip(more, types, strict=True)]
        rows = pa.RecordBatch.from_arrays([*rows.columns, *times], names=[str(i) for i in (*columns, *absent)]) \
            if absent else rows
    elif absent or listed:
        rows = tuple([_stamped(row, listed, utc, offset) + more for row in rows])
    assignments = _assigned(statement.assignments, table, utc, offset) if statement.assignments else ()
    return statement._replace(columns=(*columns, *absent), rows=rows, assignments=assignments, clock=False)


def _computed(e: Expr) -> Any:
    """The value of an expression without columns.  Raises error 1365 for a division by zero."""
    if any(map(constant, zero_divisors(e))):
        raise division_by_zero()
    return constant(e)


def _stamp(column: Column, utc: datetime, offset: timedelta) -> datetime:
    """Return the time for a column.  TIMESTAMP stores UTC, DATETIME the session's local time."""
    return cut(utc if column.type.timestamp else utc + offset, column.type.scale)


def _default(column: Column, utc: datetime, offset: timedelta) -> Any:
    """Return the default of a column that depends on the time."""
    if column.default_now:
        return _stamp(column, utc, offset)
    value = constant(at_time(time_default(column), utc, offset))
    return None if value is None else coerce(value, column, 1)


def _stamped(row: Any, listed: dict[int, Column], utc: datetime, offset: timedelta) -> tuple[Any, ...]:
    return tuple([_default(listed[n], utc, offset) if v is DEFAULT and n in listed else v for n, v in enumerate(row)])


def _assigned(assignments: Assignments, table: TableDef, utc: datetime, offset: timedelta) -> Assignments:
    """Return the assignments at this time, and assignments of the ON UPDATE columns, which keep unchanged rows."""
    done = tuple((at, at_time(e, utc, offset)) for at, e in assignments)
    if offset:
        done = tuple((at, time_zone.assigned_in_utc(e, offset) if table.columns[at].type.timestamp else e)
                     for at, e in done)
    same = [call("nseq", Col(c.type, c.nullable, at), cast(e, replace(c.type, length=0)) if not c.type.members else e)
            for at, e in done for c in (table.columns[at],)]
    for at, column in enumerate(table.columns):
        if column.update_now and all(at != a for a, _ in assignments):
            old = Col(column.type, column.nullable, at)
            now = Const(column.type, False, _stamp(column, utc, offset))
            done = (*done, (at, call("if", call("and", *same), old, now)))
    return done
