"""Converts Arrow columns of clients to the values that MySQL's clients send, and Arrow rows to INSERTs."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from noria.control.program import Program
from noria.core.errors import SqlError, no_table, wrong_value_count
from noria.core.errors.codes import TRUNCATED_WRONG_VALUE, UNKNOWN_ERROR
from noria.core.statements import Insert
from noria.sql.statements.keys import column_position


def plain(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Convert a column: a time of day becomes a TIME, a moment with a zone is in UTC, a float16 becomes a float.
    Raises SqlError 1105 for a type that no SQL type resembles, and 1292 for a time outside the years 1 to 9999."""
    kind, is_ = column.type, pa.types
    if is_.is_dictionary(kind):
        return plain(pc.cast(column, kind.value_type), name)
    if is_.is_time(kind):
        return column.cast(pa.time64("us"), safe=False).cast(pa.int64()).cast(pa.duration("us"))
    if is_.is_float16(kind):
        return column.cast(pa.float32())
    if is_.is_timestamp(kind) or is_.is_date(kind) or is_.is_duration(kind):
        return _in_range(column, name)
    if not (is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_null(kind)
            or is_.is_decimal(kind) or kind in _BYTES):
        raise SqlError(*UNKNOWN_ERROR, f"the column '{name}' has Arrow's type {kind}, which no SQL type is like; send "
                                       "numbers, texts, bytes, dates and times")
    return column


_BYTES = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_S = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_END_S = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) + 86_400


def _in_range(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return dates and times of the years 1 to 9999 without a zone, and durations up to that length.  Raises SqlError
    1292 for other values."""
    kind = column.type
    if pa.types.is_date(kind):
        codes, unit = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 1 / 86_400
    else:
        codes, unit = column.cast(pa.int64()), _SECONDS[kind.unit]
    found = pc.min_max(codes)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and (low < _FIRST_S * unit or high >= _END_S * unit):
        raise SqlError(*TRUNCATED_WRONG_VALUE,
                       f"Incorrect value in the column '{name}': it is not within the years 1 to 9999")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return codes.cast(pa.timestamp(kind.unit))
    return column


def arrow_insert(program: Program, name: str, rows: pa.Table, on_duplicate: str) -> Insert | None:
    """Return the INSERT of the rows of an Arrow table, whose columns are matched by name; None without rows.
    on_duplicate: "error", "replace" or "ignore"."""
    if on_duplicate not in ("error", "replace", "ignore"):
        raise SqlError(*UNKNOWN_ERROR, f"on_duplicate is error, replace or ignore, not '{on_duplicate}'")
    table = program.table(name)
    if table is None:
        raise no_table(name, program.view(name) is not None)
    columns = tuple(column_position(table, c) for c in rows.column_names)
    if len(set(columns)) != len(columns):
        raise wrong_value_count(1)
    if not rows.num_rows:
        return None
    (batch,) = rows.combine_chunks().to_batches(max_chunksize=rows.num_rows)
    return Insert(table.name, columns, batch, on_duplicate)
