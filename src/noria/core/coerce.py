"""What MySQL's strict mode makes of one client value for one column type: a Python value or an error.

`coerce(value, column, row)` returns the value as `values.encode` wants it.  Numbers are rounded half away
from zero, text that is no number or no date is refused, nothing is cut off silently (but spaces beyond a
VARCHAR's length, as in MySQL).  Errors name the column and the row.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import isfinite
from typing import Any

from noria.core.errors import SqlError, data_too_long, incorrect_value, out_of_range
from noria.core.limits import MAX_INT, MAX_PACKET_BYTES, MIN_INT
from noria.core.types import Column, Kind

EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
MAX_TEXT_BYTES = MAX_PACKET_BYTES  # every flavour of TEXT is one type here, as long as a statement may be
_WIDE = Context(prec=80)  # enough digits that rounding to a column's scale is the only rounding
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(.*)", re.DOTALL)
_DATE = re.compile(r"\s*(\d{4}|\d{2})[-/.:](\d{1,2})[-/.:](\d{1,2})(?:[T ]\s*(.*?))?\s*", re.DOTALL)
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*(Z|[+-]\d{1,2}:\d{2})?")
_DIGITS = re.compile(r"\s*(\d{6}|\d{8}|\d{12}|\d{14})(?:\.(\d*))?\s*")
_TIMESTAMP_RANGE = datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7, 999_999)


def coerce(value: Any, column: Column, row: int) -> Any:
    """The value (not None) as one of the column's type."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = _utf8(bytes(value), column, row)
    kind = column.type.kind
    if kind is Kind.INT:
        return _integer(value, column, row)
    if kind is Kind.TEXT:
        return _text(value, column, row)
    if kind is Kind.DOUBLE:
        return _double(value, column, row)
    if kind is Kind.DECIMAL:
        return _decimal(value, column, row)
    return _moment(value, column, row)


def integer_bounds(column: Column) -> tuple[int, int]:
    """The least and greatest integer the column takes; those of BIGINT are what an int64 code can hold."""
    bits = column.type.bits
    if column.type.unsigned:
        return 0, min(2**bits - 1, MAX_INT)
    return max(-(2 ** (bits - 1)), MIN_INT), 2 ** (bits - 1) - 1


def _utf8(value: bytes, column: Column, row: int) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as e:
        shown = "".join(f"\\x{b:02X}" for b in value[e.start : e.start + 6])
        raise incorrect_value("string", shown, column.name, row) from None


def _number(value: Any, kind: str, column: Column, row: int) -> Decimal:
    """The value as a Decimal, whatever its type."""
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value)
        if found is None:
            raise incorrect_value(kind, value, column.name, row)
        if found[2].strip():
            raise SqlError(1265, "01000", f"Data truncated for column '{column.name}' at row {row}")
        value = found[1]
    elif isinstance(value, datetime):
        value = value.strftime("%Y%m%d%H%M%S")
    elif isinstance(value, date):
        value = value.strftime("%Y%m%d")
    elif isinstance(value, float):
        value = repr(value)  # 0.1 means 0.1 here, not its 55 binary digits
    try:
        number = Decimal(value)
    except (InvalidOperation, TypeError, ValueError):
        raise incorrect_value(kind, value, column.name, row) from None
    if not number.is_finite():
        raise out_of_range(column.name, row)
    return number


def _rounded(number: Decimal, scale: int, column: Column, row: int) -> int:
    """number * 10**scale, rounded half away from zero."""
    if number.adjusted() > 40:
        raise out_of_range(column.name, row)
    if number.adjusted() < -40:
        return 0
    return int(_WIDE.scaleb(number, scale).to_integral_value(ROUND_HALF_UP, _WIDE))


def _integer(value: Any, column: Column, row: int) -> int:
    if isinstance(value, int):
        number = int(value)
    else:
        number = _rounded(_number(value, "integer", column, row), 0, column, row)
    low, high = integer_bounds(column)
    if not low <= number <= high:
        raise out_of_range(column.name, row)
    return number


def _double(value: Any, column: Column, row: int) -> float:
    number = float(value) if isinstance(value, (float, int)) else float(_number(value, "double", column, row))
    if not isfinite(number) or (column.type.unsigned and number < 0):
        raise out_of_range(column.name, row)
    return number


def _decimal(value: Any, column: Column, row: int) -> Decimal:
    type = column.type
    scaled = _rounded(_number(value, "decimal", column, row), type.scale, column, row)
    if abs(scaled) >= 10**type.precision or (type.unsigned and scaled < 0):
        raise out_of_range(column.name, row)
    return Decimal(scaled).scaleb(-type.scale)


def _text(value: Any, column: Column, row: int) -> str:
    if not isinstance(value, str):
        value = _shown(value)
    length = column.type.length
    if length and len(value) > length:
        if value[length:].strip(" "):
            raise data_too_long(column.name, row)
        value = value[:length]
    try:
        if not length and len(value) * 4 > MAX_TEXT_BYTES and len(value.encode()) > MAX_TEXT_BYTES:
            raise data_too_long(column.name, row)
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError as e:
        raise incorrect_value("string", ascii(value[e.start : e.start + 6])[1:-1], column.name, row) from None
    return str(value)


def _shown(value: Any) -> str:
    """The text of a value as MySQL writes it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        shown = repr(value)
        return (shown[:-2] if shown.endswith(".0") else shown).replace("e+", "e")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)  # datetime: '2020-01-02 03:04:05'


# ------------------------------------------------------------------ dates and times
def _moment(value: Any, column: Column, row: int) -> date | datetime:
    """A date for DATE, a datetime for DATETIME."""
    type = column.type
    moment = _datetime(value)
    if moment is not None and type.kind is Kind.DATETIME:
        moment = _to_scale(moment, type.scale)
    if moment is None or (type.timestamp and not _TIMESTAMP_RANGE[0] <= moment <= _TIMESTAMP_RANGE[1]):
        raise _bad_moment(value, column, row)
    return moment.date() if type.kind is Kind.DATE else moment


def _bad_moment(value: Any, column: Column, row: int) -> SqlError:
    kind = "date" if column.type.kind is Kind.DATE else "datetime"
    where = f"for column '{column.name}' at row {row}"
    return SqlError(1292, "22007", f"Incorrect {kind} value: '{value}' {where}")


def _datetime(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, date):
        return datetime.combine(value, time())
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, Decimal, float)):
        value = _shown(value)
    if not isinstance(value, str):
        return None
    try:
        return _parsed(value)
    except (ValueError, OverflowError):
        return None


def _parsed(text: str) -> datetime | None:
    """'2020-01-02 03:04:05.678', '2020/1/2', '20200102030405': whatever MySQL reads as a moment."""
    digits = _DIGITS.fullmatch(text)
    if digits is not None:
        run = digits[1]
        at = 4 if len(run) in (8, 14) else 2
        pairs = [int(run[i : i + 2]) for i in range(at, len(run), 2)]
        return _build(run[:at], pairs, digits[2])
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    clock = _TIME.fullmatch(found[4]) if found[4] else None
    if found[4] and clock is None:
        return None
    pairs = [int(found[2]), int(found[3])]
    if clock is None:
        return _build(found[1], pairs, None)
    moment = _build(found[1], pairs + [int(clock[i] or 0) for i in (1, 2, 3)], clock[4])
    return moment - _offset(clock[5]) if clock[5] else moment


def _build(year: str, parts: list[int], fraction: str | None) -> datetime:
    number = int(year)
    if len(year) == 2:  # MySQL's rule: 00-69 are of this century
        number += 2000 if number < 70 else 1900
    micros = (fraction or "").ljust(7, "0")
    moment = datetime(number, *parts)  # type: ignore[arg-type]
    return moment + timedelta(microseconds=int(micros[:6]) + (micros[6] >= "5"))


def _offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    hours, minutes = zone[1:].split(":")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    if offset > timedelta(hours=14):
        raise ValueError(zone)
    return -offset if zone[0] == "-" else offset


def _to_scale(moment: datetime, scale: int) -> datetime | None:
    """Rounded to `scale` fractional digits, half up; None where that leaves the calendar."""
    unit: int = 10 ** (6 - scale)
    if moment.microsecond % unit == 0:
        return moment
    micros = (moment.microsecond + unit // 2) // unit * unit
    try:
        return moment.replace(microsecond=0) + timedelta(microseconds=micros)
    except OverflowError:
        return None
