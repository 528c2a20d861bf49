"""Converts rows between Arrow and Python, and runs work on many rows in a thread (`beside`).

Keeps true: many rows are converted in chunks.  A conversion is C code that holds the interpreter's lock, so one large
conversion would stop all other threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence, Sized
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar, overload
from weakref import WeakKeyDictionary

import pyarrow as pa

from noria.core.expressions.coerce import show_time
from noria.core.limits import LARGE_RESULT_BYTES, OFF_LOOP_ROWS, RESULT_CHUNK_BYTES
from noria.core.types import Field, Kind, SqlType
from noria.core.values import array_of, python_values
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.view import ViewDef
from noria.runtime.link.result_memory import MemoryLease

Many = TypeVar("Many", bound=Sized)


class LargeRows(Sequence[tuple[Any, ...]]):
    """Rows of an Arrow table as tuples, converted in chunks when they are read.

    width: the number of leading columns in a tuple.  lease: the room of the table, released with this object.
    """

    def __init__(self, table: pa.Table, width: int, lease: MemoryLease | None = None):
        self._table, self.lease = table.select(range(width)), lease
        each = self._table.nbytes // max(len(self), 1)
        self.chunk_rows = min(max(1, RESULT_CHUNK_BYTES // max(each, 1)), OFF_LOOP_ROWS)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, at: int) -> tuple[Any, ...]: ...

    @overload
    def __getitem__(self, at: slice) -> list[tuple[Any, ...]]: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            return _tuples(self._table.slice(start, max(stop - start, 0)), self._table.num_columns)[::step]
        return self[at % len(self):at % len(self) + 1][0] if -len(self) <= at < len(self) else [][at]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for at in range(0, len(self), self.chunk_rows):
            yield from self[at:at + self.chunk_rows]


def is_large(table: pa.Table) -> bool:
    """True if the rows are too many or too long to be converted to Python values at once."""
    return bool(table.num_rows > OFF_LOOP_ROWS or table.nbytes > LARGE_RESULT_BYTES)


def _tuples(table: pa.Table, width: int) -> list[Any]:
    return list(zip(*(python_values(c) for c in table.columns[:width]), strict=True))


def python_rows(table: pa.Table, width: int) -> list[Any]:
    """Return tuples of the first `width` columns.  Many rows are converted in chunks, so another thread waits for at
    most one chunk."""
    if table.num_rows <= OFF_LOOP_ROWS:
        return _tuples(table, width)
    return list(LargeRows(table, width))


def arrow_rows(fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [_array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    # Names of result columns may repeat, which a schema allows and a dictionary would not.
    return pa.Table.from_arrays(arrays, names=[f.name for f in fields])


def _array(values: Sequence[Any], type: SqlType) -> pa.Array:
    """Return an Arrow array.  A sum may have more digits than any DECIMAL column; the array's type then has 38."""
    try:
        return array_of(values, type)
    except pa.ArrowInvalid:
        if type.kind is not Kind.DECIMAL:
            raise
        return pa.array(values, pa.decimal128(38, type.scale))


def jsonable(value: Any) -> Any:
    """Return a value that JSON can hold.  Dates, decimals (with all digits), times and bytes become text."""
    if isinstance(value, (date, datetime)):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, timedelta):
        return show_time(value, 6 if value.microseconds else 0)
    return value


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def off_loop(make: Callable[[Many], Sequence[Any]], found: Many) -> Sequence[Any]:
    """Return `make(found)`.  For many rows it runs in a thread, for one result at a time."""
    if len(found) <= OFF_LOOP_ROWS:
        return make(found)
    loop = asyncio.get_running_loop()
    async with _turns.setdefault(loop, asyncio.Semaphore(1)):
        return await asyncio.to_thread(make, found)


def shown(view: ViewDef, rows: pa.Table, through: ReadThrough | None) -> pa.Table:
    """Return the visible columns and `__key` under the view's names; with `through`, all columns that it chooses."""
    if through is not None:
        return rows.rename_columns([*(view.plan.fields[c].name for c in through.columns), "__key"])
    names = [*(f.name for f in view.fields), "__key"]
    return pa.Table.from_arrays([*rows.columns[: view.visible], rows.column("__key")], names=names)


def chosen(found: pa.Table, through: ReadThrough | None) -> pa.Table:
    """Return the rows and columns that `through` chooses from another view's reader, and `__key`."""
    if through is None:
        return found
    for check in through.checks:
        passes = [check.holds(v) for v in found.column(check.column).to_pylist()]
        found = found.filter(pa.array(passes, pa.bool_()))
    return found.select([*through.columns, found.num_columns - 1])


def as_batch(table: pa.Table, rows: int) -> pa.RecordBatch:
    return table.to_batches(max_chunksize=rows)[0]
