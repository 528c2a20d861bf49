"""Lets a session without NO_ZERO_DATE write '0000-00-00' into DATE, DATETIME and TIMESTAMP columns.

Its texts become values here, which tables take in any mode.  With NO_ZERO_DATE, the texts stay, and a table refuses
them (1292).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.zero_date import ZERO_DATE, ZERO_DATETIME, ZEROS, is_zero_text
from noria.core.statements import NEW, Delete, Insert, Update
from noria.core.types import MOMENTS, Kind, TableDef
from noria.sql import commands as sql
from noria.sql.statements.defaults import invalid_default

Write = Insert | Update | Delete


def read(command: Write, table: TableDef | None) -> Write:
    """Return the write with the zero date where a text of it is written into a column of dates."""
    if table is None or isinstance(command, Delete):
        return command
    assigned = tuple((at, _assigned(e, table, at)) for at, e in command.assignments)
    if isinstance(command, Update):
        return command._replace(assignments=assigned)
    places = [n for n, at in enumerate(command.columns) if table.columns[at].type.kind in MOMENTS]
    return command._replace(assignments=assigned, rows=_rows(command.rows, places))


def _rows(rows: Any, places: Sequence[int]) -> Any:
    if isinstance(rows, pa.RecordBatch):
        if not any(_has_zeros(rows.column(n)) for n in places):
            return rows
        rows = list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
    if not any(is_zero_text(row[n]) for row in rows for n in places):
        return rows
    return [tuple(ZERO_DATETIME if n in places and is_zero_text(v) else v for n, v in enumerate(row)) for row in rows]


def _has_zeros(column: pa.Array) -> bool:
    texts = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return texts and bool(pc.any(pc.match_substring_regex(column, r"^\s*0000")).as_py())


def _assigned(e: Expr, table: TableDef, at: int) -> Expr:
    type = table.columns[at % NEW].type
    if type.kind in MOMENTS and isinstance(e, Const) and is_zero_text(e.value):
        return Const(type, False, ZERO_DATE if type.kind is Kind.DATE else ZERO_DATETIME)
    return e


def refuse_default(command: sql.Command) -> None:
    """Raise error 1067 if the command gives a column the zero date as its default."""
    if isinstance(command, sql.CreateTable | sql.AlterTable):
        before = command.was.columns if isinstance(command, sql.AlterTable) else ()
        for column in command.table.columns:
            if isinstance(column.default, ZEROS) and column not in before:
                raise invalid_default(column)
