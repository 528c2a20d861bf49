"""Rows between Arrow and Python, and work on many of them beside the loop.

Keeps true: what is made of many rows is made in pieces, since a thread in C code gives nobody else a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Sized
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa

from noria.core.expressions.coerce import show_time
from noria.core.limits import OFF_LOOP_ROWS
from noria.core.types import Field, Kind, SqlType
from noria.core.values import arrow_type

Many = TypeVar("Many", bound=Sized)


def python_rows(table: pa.Table, width: int) -> list[Any]:
    """Tuples of the first columns, made in pieces: another thread waits for no more than one."""
    if table.num_rows <= OFF_LOOP_ROWS:
        return list(zip(*(c.to_pylist() for c in table.columns[:width]), strict=True))
    pieces = table.to_batches(max_chunksize=OFF_LOOP_ROWS)
    return [row for p in pieces for row in zip(*(c.to_pylist() for c in p.columns[:width]), strict=True)]


def arrow_rows(fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [_array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    # Names of result columns may repeat, which a schema allows and a dictionary would not.
    return pa.Table.from_arrays(arrays, names=[f.name for f in fields])


def _array(values: Sequence[Any], type: SqlType) -> pa.Array:
    """Sums may have a digit more than any DECIMAL column: then the column is as wide as Arrow's are."""
    try:
        return pa.array(values, arrow_type(type))
    except pa.ArrowInvalid:
        if type.kind is not Kind.DECIMAL:
            raise
        return pa.array(values, pa.decimal128(38, type.scale))


def jsonable(value: Any) -> Any:
    """Dates as ISO text, decimals as text with all their digits, bytes as text."""
    if isinstance(value, (date, datetime)):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, timedelta):
        return show_time(value, 6 if value.microseconds else 0)
    return value


async def beside(make: Callable[[Many], list[Any]], found: Many) -> list[Any]:
    """What is made of rows; of many rows in a thread."""
    return make(found) if len(found) <= OFF_LOOP_ROWS else await asyncio.to_thread(make, found)
