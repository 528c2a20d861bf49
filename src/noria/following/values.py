"""Converts the source's values to Arrow, from a SELECT or from the binlog.

PyMySQL parses the text of a SELECT, and mysql-replication unpacks the binlog.  Both results become the same value here.

Keeps true: a value without an equal here (a date of zeros, half of a text) is refused.  None becomes NULL or another
value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from noria.core.identifiers import quote_identifier
from noria.following.address import CannotFollow
from noria.following.schema import SourceColumn, SourceTable

_ARROW: dict[str, pa.DataType] = {
    "float": pa.float32(), "double": pa.float64(), "date": pa.date32(), "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us"), "time": pa.duration("us"), "year": pa.int16(),
    **dict.fromkeys("binary varbinary tinyblob blob mediumblob longblob".split(), pa.binary())}
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_EPOCH, _SECOND = datetime(1970, 1, 1), timedelta(seconds=1)
Convert = Callable[[Any], Any]


def arrow_type(column: SourceColumn) -> pa.DataType:
    if (bits := _BITS.get(column.kind)) is not None:
        return getattr(pa, f"{'u' if column.unsigned else ''}int{bits}")()
    if column.kind == "decimal":
        digits, _, scale = (column.arguments or "10").partition(",")
        return pa.decimal128(int(digits), int(scale or 0))
    return _ARROW.get(column.kind, pa.string())


def arrays(table: SourceTable, places: Sequence[int], rows: Sequence[Sequence[Any]], converts: Sequence[Convert | None]
           ) -> list[pa.Array]:
    """Convert rows to arrays.  places: the table's columns that the rows have.  converts: for all columns of the table.

    Raises Refused, with the column's name, for a value that cannot be converted."""
    out = []
    for place, values in zip(places, zip(*rows, strict=True), strict=True):
        column, convert = table.columns[place], converts[place]
        try:
            if convert is not None:
                values = tuple(None if v is None else convert(v) for v in values)
            out.append(pa.array(values, arrow_type(column)))
        except (pa.ArrowException, ValueError, TypeError, OverflowError, UnicodeError) as e:
            raise CannotFollow(f"a value of {table.name}.{column.name} ({column.type}) cannot be had here: {e}") from e
    return out


# ------------------------------------------------------------------ of a SELECT
def selected(column: SourceColumn) -> str:
    """Return the expression that selects a column exactly: a plain FLOAT would be printed with six digits."""
    return f"({quote_identifier(column.name)} + 0e0)" if column.kind == "float" else quote_identifier(column.name)


def of_select(column: SourceColumn) -> Convert | None:
    wanted = {"date": date, "datetime": datetime, "timestamp": datetime, "time": timedelta}.get(column.kind)
    if wanted is None:
        return None

    def checked(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise ValueError(f"'{value}': change it in the source")
        return value

    return checked


# ------------------------------------------------------------------ of the binlog
def of_binlog(column: SourceColumn) -> Convert | None:
    """Return the conversion of a column's values from the binlog, or None.  It is not called for NULLs; `binlog.py`
    recognises values that the library only reads as NULL."""
    if column.kind == "binary":
        width = int(column.arguments or 1)
        return lambda v: (v or b"").ljust(width, b"\0")  # trailing zeros are not logged
    if arrow_type(column) == pa.binary():
        return lambda v: v or b""  # the library returns an empty value as a str
    if column.kind == "year":
        return lambda v: 0 if v == 1900 else v  # the library reads 0000 as 1900
    if column.kind == "timestamp":
        return _moment
    if column.kind == "time":
        return _clock
    if column.kind == "set":
        members = column.members
        return lambda v: ",".join(m for m in members if m in v)
    return None


def _clock(value: timedelta) -> timedelta:
    """Correct a negative time: its whole seconds are rounded down, but the library assumes rounding towards zero.

    >>> _clock(timedelta(seconds=-1.75)).total_seconds()
    -1.25
    """
    if value >= timedelta(0) or not value.microseconds:
        return value
    return value + 2 * (-value % _SECOND) - _SECOND


def _moment(value: datetime) -> datetime:
    if value == _EPOCH:
        raise ValueError("'0000-00-00 00:00:00': change it in the source")
    return value
