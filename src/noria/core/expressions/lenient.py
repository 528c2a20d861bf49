"""Converts a value that does not fit a column, as MySQL does without a strict sql_mode and with IGNORE.

    '12abc' for INT   12, warning 1265          300 for TINYINT        127, warning 1264
    'abcd' for CHAR(3)   'abc', warning 1265    'no' for a DATE        '0000-00-00', warning 1265

`fit` returns a value that `coerce` accepts, and the warning.  Its text is the column's strict error where the numbers
are equal.  Keeps true: a value that fits stays as it is.  A text that is no JSON stays an error.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import nextafter
from typing import Any

from noria.core.errors import SqlError, no_default, null_not_allowed, out_of_range
from noria.core.errors.codes import (
    DATA_TOO_LONG,
    TRUNCATED_WRONG_VALUE,
    TRUNCATED_WRONG_VALUE_FOR_FIELD,
    WARN_DATA_OUT_OF_RANGE,
    WARN_DATA_TRUNCATED,
)
from noria.core.expressions.casts import number_prefix
from noria.core.expressions.coerce import (
    LONGEST_TIME,
    NO_MEMBER,
    SMALL_TEXTS,
    coerce,
    integer_bounds,
    member_place,
    moment_prefix,
)
from noria.core.expressions.zero_date import ZERO_DATE, ZERO_DATETIME
from noria.core.limits import MAX_INT
from noria.core.types import Column, Kind

FITTED = "fitted"  # the operation of `functions.fitted`
Warned = tuple[Any, SqlError | None]
LONGEST_NUMBER = 1_000  # characters that are read of the number at a text's beginning: no column can hold more digits
OF_VALUES = {c.number for c in (DATA_TOO_LONG, TRUNCATED_WRONG_VALUE, TRUNCATED_WRONG_VALUE_FOR_FIELD,
                                WARN_DATA_OUT_OF_RANGE, WARN_DATA_TRUNCATED)}


def fit(value: Any, column: Column, row: int) -> Warned:
    """Return what the column keeps of a value that is not None, and the warning, None if the value fits."""
    try:
        coerce(value, column, row)
    except SqlError as e:
        if e.code not in OF_VALUES or column.type.is_json:
            raise
        return _FITS[column.type.kind](value, column, row, e)
    return value, None


def without_null(column: Column) -> Warned:
    """Return the column's implicit default, which stands for a NULL that it may not have, and the warning."""
    return implicit(column), null_not_allowed(column.name)


def without_default(column: Column) -> Warned:
    """Return the implicit default of a column without a value and without a default, and the warning."""
    return implicit(column), no_default(column.name)


def implicit(column: Column) -> Any:
    """The value that MySQL takes for a column that has neither a value nor a default."""
    kind = column.type.kind
    if kind is Kind.ENUM:
        return column.type.members[0]
    if column.type.is_json:
        return "null"
    return _IMPLICIT[kind]


_IMPLICIT: dict[Kind, Any] = {
    Kind.INT: 0, Kind.DECIMAL: 0, Kind.DOUBLE: 0, Kind.TEXT: "", Kind.SET: "", Kind.TIME: timedelta(),
    Kind.DATE: ZERO_DATE, Kind.DATETIME: ZERO_DATETIME}


def _truncated(column: Column, row: int) -> SqlError:
    return SqlError(*WARN_DATA_TRUNCATED, f"Data truncated for column '{column.name}' at row {row}")


# ------------------------------------------------------------------ numbers
def _number(value: Any, column: Column, row: int, error: SqlError) -> Warned:
    number, warning = value, error
    if column.type.is_bit:
        return integer_bounds(column)[1], out_of_range(column.name, row)
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        number = number_prefix(value[:LONGEST_NUMBER])
        if isinstance(number, float):
            number = Decimal(repr(number))
    elif isinstance(value, timedelta):
        minutes, seconds = divmod(abs(value) // timedelta(seconds=1), 60)
        number = (minutes // 60 * 10_000 + minutes % 60 * 100 + seconds) * (-1 if value < timedelta() else 1)
    elif not isinstance(value, (int, float, Decimal)):
        number = Decimal(value.strftime("%Y%m%d%H%M%S" if isinstance(value, datetime) else "%Y%m%d")) if isinstance(
            value, date) else 0
    if column.type.kind is Kind.DECIMAL and column.type.length:
        number = round(Decimal(number), column.type.scale) if Decimal(number).adjusted() < LONGEST_NUMBER else number
    try:
        coerce(number, column, row)
    except SqlError:
        number, warning = _nearest(number, column), out_of_range(column.name, row)
    return number, warning


def _nearest(number: Any, column: Column) -> Any:
    """The least or greatest value of the column."""
    type, negative = column.type, number < 0
    if type.declared == "year":
        return 0
    if type.kind is Kind.INT:
        return integer_bounds(column)[not negative]
    if type.unsigned and negative:
        return 0
    most: Any = Decimal(min(10**type.precision - 1, MAX_INT)).scaleb(-type.scale)
    if type.kind is Kind.DOUBLE and type.precision:
        beyond = 10.0 ** (type.precision - type.scale)
        most = min(beyond - 10.0**-type.scale, nextafter(beyond, 0))
    elif type.kind is Kind.DOUBLE:
        most = 3.4028234663852886e38 if type.bits == 32 else 1.7976931348623157e308
    return -most if negative else most


# ------------------------------------------------------------------ texts
def _text(value: Any, column: Column, row: int, error: SqlError) -> Warned:
    type = column.type
    if type.is_bytes:
        data = bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else str(value).encode()
        return data[: type.length or SMALL_TEXTS[type.declared]], _truncated(column, row)
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value).decode("utf-8", "ignore")
    value = str(value).encode("utf-8", "ignore").decode()
    if type.length:
        value = value[: type.length]
    elif type.declared in SMALL_TEXTS:
        value = value.encode()[: SMALL_TEXTS[type.declared]].decode("utf-8", "ignore")
    coerce(value, column, row)  # of the bound of all texts
    return value, _truncated(column, row) if error.code == DATA_TOO_LONG.number else error


def _member(value: Any, column: Column, row: int, error: SqlError) -> Warned:
    return NO_MEMBER, _truncated(column, row)


def _members(value: Any, column: Column, row: int, error: SqlError) -> Warned:
    members = column.type.members
    if isinstance(value, (int, float, Decimal)):
        mask = int(value) & (2 ** len(members) - 1)
        return ",".join(m for i, m in enumerate(members) if mask >> i & 1), _truncated(column, row)
    text = value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)
    return ",".join(p for p in text.split(",") if member_place(p, members)), _truncated(column, row)


# ------------------------------------------------------------------ dates and times
def _moment(value: Any, column: Column, row: int, error: SqlError) -> Warned:
    zero: Any = ZERO_DATE if column.type.kind is Kind.DATE else ZERO_DATETIME
    found = moment_prefix(str(value))
    if not found:
        return zero, _truncated(column, row)
    try:
        coerce(found, column, row)
    except SqlError:
        return zero, out_of_range(column.name, row)
    return found, _truncated(column, row)


def _time(value: Any, column: Column, row: int, error: SqlError) -> Warned:
    text = str(value).strip()
    hours = text.lstrip("-").partition(":")[0]
    digits = ":" in text and hours.isascii() and hours.isdigit()
    if digits and (len(hours) > 9 or int(hours) > 838):
        return -LONGEST_TIME if text.startswith("-") else LONGEST_TIME, out_of_range(column.name, row)
    return timedelta(), _truncated(column, row)


_FITS: dict[Kind, Callable[[Any, Column, int, SqlError], Warned]] = {
    Kind.INT: _number, Kind.DECIMAL: _number, Kind.DOUBLE: _number, Kind.TEXT: _text, Kind.ENUM: _member,
    Kind.SET: _members, Kind.DATE: _moment, Kind.DATETIME: _moment, Kind.TIME: _time}
