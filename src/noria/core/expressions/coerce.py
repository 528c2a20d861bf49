"""Converts a client's value to a column's type, as MySQL's strict mode does: to a Python value or an error.

`coerce(value, column, row)` returns the value as `values.encode` expects it.  Numbers are rounded half away from zero,
but floats to integers half to even.  Text that is no number or no date is rejected.  Only spaces beyond the length of a
VARCHAR are truncated silently, as in MySQL.  Errors name the column and the row.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import floor, isfinite
from typing import Any

from noria.core.errors import SqlError, data_too_long, incorrect_value, out_of_range
from noria.core.errors.codes import (
    INVALID_JSON_TEXT,
    TRUNCATED_WRONG_VALUE,
    WARN_DATA_OUT_OF_RANGE,
    WARN_DATA_TRUNCATED,
)
from noria.core.expressions.library import json
from noria.core.expressions.zero_date import ZERO_DATE, ZERO_DATETIME, ZEROS
from noria.core.limits import MAX_INT, MAX_PACKET_BYTES, MIN_INT
from noria.core.symbols import fold
from noria.core.types import Column, Kind

EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
MAX_TEXT_BYTES = MAX_PACKET_BYTES  # all TEXT types but the small ones have this bound: the length of a statement
SMALL_TEXTS = {"tinytext": 255, "tinyblob": 255}  # the bytes of the types with a lower bound
_FLOAT = struct.Struct("<f")
_WIDE = Context(prec=80)  # enough digits that rounding to a column's scale is the only rounding
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(.*)", re.DOTALL)
_DATE = re.compile(r"\s*(\d{4}|\d{2})[-/.:](\d{1,2})[-/.:](\d{1,2})(?:[T ]\s*(.*?))?\s*", re.DOTALL)
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*(Z|[+-]\d{1,2}:\d{2})?")
_DIGITS = re.compile(r"\s*(\d{6}|\d{8}|\d{12}|\d{14})(?:\.(\d*))?\s*")
_PREFIX = re.compile(r"\s*\d+[-/.:]\d+[-/.:]\d+(?:[T ]\s*\d+:\d+(?::\d+(?:\.\d*)?)?)?|\s*\d{6,}")
NO_MEMBER = Decimal("NaN")  # a value for an ENUM: none of its members, which is shown as ''.  No client can send it.
_TIMESTAMP_RANGE = datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7, 999_999)


def coerce(value: Any, column: Column, row: int) -> Any:
    """Convert a value, not None, to the column's type.  Raises SqlError if it does not fit."""
    kind = column.type.kind
    if column.type.is_bytes:
        return _bytes(value, column, row)
    if column.type.is_bit:
        return _bits(value, column, row)
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = _utf8(bytes(value), column, row)
    if kind in _OTHERS:
        return _OTHERS[kind](value, column, row)
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
    """Return the least and greatest integer of the column.  For BIGINT they are the bounds of codes."""
    bits = column.type.bits
    if column.type.declared == "year":
        return 0, 2155
    if column.type.is_bit:
        return 0, min(2**column.type.precision - 1, MAX_INT)
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
    """Convert a value of any type to a Decimal.  Raises SqlError if it is no number."""
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value)
        if found is None:
            raise incorrect_value(kind, value, column.name, row)
        if found[2].strip():
            raise SqlError(*WARN_DATA_TRUNCATED, f"Data truncated for column '{column.name}' at row {row}")
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


def _rounded(number: Decimal, scale: int, column: Column, row: int, rounding: str = ROUND_HALF_UP) -> int:
    """Return number * 10**scale as an integer, rounded half away from zero by default."""
    if number.adjusted() > 40:
        raise out_of_range(column.name, row)
    if number.adjusted() < -40:
        return 0
    return int(_WIDE.scaleb(number, scale).to_integral_value(rounding, _WIDE))


def _integer(value: Any, column: Column, row: int) -> int:
    if isinstance(value, int):
        number = int(value)
    else:
        rounding = ROUND_HALF_EVEN if isinstance(value, float) else ROUND_HALF_UP
        number = _rounded(_number(value, "integer", column, row), 0, column, row, rounding)
    if column.type.declared == "year":
        return _year(value, number, column, row)
    low, high = integer_bounds(column)
    if not low <= number <= high:
        raise out_of_range(column.name, row)
    return number


def bits_of_text(value: Any) -> int:
    """The number whose bytes are those of a text or of bytes."""
    return int.from_bytes(value.encode() if isinstance(value, str) else bytes(value), "big")


def _bits(value: Any, column: Column, row: int) -> int:
    """Convert to BIT: a number, or a text or bytes, whose bytes are the number's."""
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        number = bits_of_text(value)
    else:
        number = _rounded(_number(value, "integer", column, row), 0, column, row)
    if not 0 <= number < 2**column.type.precision:
        raise data_too_long(column.name, row)
    if number > MAX_INT:
        raise out_of_range(column.name, row)
    return number


def _double(value: Any, column: Column, row: int) -> float:
    try:
        number = float(value if isinstance(value, (float, int)) else _number(value, "double", column, row))
    except OverflowError:  # an integer of hundreds of digits
        raise out_of_range(column.name, row) from None
    if not isfinite(number) or (column.type.unsigned and number < 0):
        raise out_of_range(column.name, row)
    if column.type.precision:
        number = _shortened(number, column, row)
    if column.type.bits == 32:
        return _single(number, column, row)
    return number


def _shortened(number: float, column: Column, row: int) -> float:
    """Round to the digits of DOUBLE(M,D): MySQL rounds the binary fraction, half to even."""
    whole, unit = floor(number), 10.0**column.type.scale
    rounded = whole + round((number - whole) * unit) / unit
    if abs(rounded) >= 10.0 ** (column.type.precision - column.type.scale):
        raise out_of_range(column.name, row)
    return rounded


def _single(number: float, column: Column, row: int) -> float:
    """Return the nearest FLOAT."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(number))[0])
    except OverflowError:
        raise out_of_range(column.name, row) from None


def year_of(number: int, value: Any) -> int:
    """The year that a number means.  Two digits mean 1970 to 2069.  The number 0 is the year 0000, the text '0' is
    2000."""
    if 0 < number < 100 or (number == 0 and isinstance(value, str) and value.strip() != "0000"):
        return number + (2000 if number < 70 else 1900)
    return number


def _year(value: Any, year: int, column: Column, row: int) -> int:
    """Convert to YEAR."""
    year = year_of(year, value)
    if year and not 1901 <= year <= 2155:
        raise out_of_range(column.name, row)
    return year


def _decimal(value: Any, column: Column, row: int) -> Decimal:
    type = column.type
    number = _number(value, "decimal", column, row)
    scaled = _rounded(number, type.scale, column, row)
    if type.length and scaled * 10**type.length != _rounded(number, type.scale + type.length, column, row):
        raise SqlError(*WARN_DATA_OUT_OF_RANGE,
                       f"Out of range value for column '{column.name}' at row {row}: {type.sql()} has {type.scale} "
                       "digits behind the point here, and zeros behind them; round the value, or use DOUBLE")
    if abs(scaled) > min(10**type.precision - 1, MAX_INT) or (type.unsigned and scaled < 0):
        raise out_of_range(column.name, row)
    return Decimal(scaled).scaleb(-type.scale)


def _text(value: Any, column: Column, row: int) -> str:
    type = column.type
    if type.is_json:
        return _json_text(value, column, row)
    if not isinstance(value, str):
        value = _shown(value)
    if type.declared == "char":
        value = value.rstrip(" ")
    length = type.length
    if length and len(value) > length:
        if value[length:].strip(" "):
            raise data_too_long(column.name, row)
        value = value[:length]
    try:
        if not length and len(value) * 4 > MAX_TEXT_BYTES and len(value.encode()) > MAX_TEXT_BYTES:
            raise data_too_long(column.name, row)
        if not value.isascii():
            value.encode()
        if type.declared in SMALL_TEXTS and len(value.encode()) > SMALL_TEXTS[type.declared]:
            raise data_too_long(column.name, row)
    except UnicodeEncodeError as e:
        raise incorrect_value("string", ascii(value[e.start : e.start + 6])[1:-1], column.name, row) from None
    return str(value)


def _shown(value: Any) -> str:
    """Return the text of a value as MySQL prints it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return show_double(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, timedelta):
        return show_time(value, 6 if value.microseconds else 0)
    return str(value)  # datetime: '2020-01-02 03:04:05'


def show_double(value: float) -> str:
    """The shortest digits that read back as the same double, formatted as by MySQL and MariaDB.

    An exponent is used for 15 and more places before the point, unless there are digits behind it, and from the 15th
    place behind the point on.

    >>> [show_double(v) for v in (1.0, 1e15, 1000000000000000.5, 1.5e-10, 1e-15, 1e-16)]
    ['1', '1e15', '1000000000000000.5', '0.00000000015', '0.000000000000001', '1e-16']
    """
    shortest = repr(value)
    if 1e-4 <= abs(value) < 1e15 or not value:
        return shortest.removesuffix(".0") if value else "0"
    mantissa, _, exponent = shortest.partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    integral, _, fraction = mantissa.partition(".")
    digits = (integral + fraction.rstrip("0")).lstrip("0").rstrip("0")
    point = len(integral) + int(exponent or 0)  # the value is 0.digits * 10**point
    if 0 < point < len(digits):
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if point > 15 or point < -14:
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{point - 1}"
    return f"{sign}0.{'0' * -point}{digits}"


def _bytes(value: Any, column: Column, row: int) -> bytes:
    """Convert to bytes.  BINARY is padded with zeros to its length."""
    data = bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _shown(value).encode()
    type = column.type
    if len(data) > (type.length or SMALL_TEXTS.get(type.declared, MAX_TEXT_BYTES)):
        raise data_too_long(column.name, row)
    return data.ljust(type.length, b"\0") if type.declared == "binary" else data


def _json_text(value: Any, column: Column, row: int) -> str:
    if isinstance(value, (dict, list)):
        return json.show(value)
    try:
        return json.normalised(_shown(value))
    except SqlError as e:
        raise SqlError(*INVALID_JSON_TEXT, f"{e.message} for column '{column.name}' at row {row}") from None


# ------------------------------------------------------------------ ENUM and SET
def member_place(text: str, members: tuple[str, ...]) -> int | None:
    """Return the position of an ENUM's member, from 1, or None.  Case and trailing spaces do not matter."""
    wanted = fold(text.rstrip(" "))
    return next((i for i, m in enumerate(members, 1) if fold(m) == wanted), None)


def member_mask(text: str, members: tuple[str, ...]) -> int | None:
    """Return the mask of a comma-separated list of a SET's members, or None if one is no member."""
    mask = 0
    for part in text.split(",") if text else ():
        place = member_place(part, members)
        if place is None:
            return None
        mask |= 1 << (place - 1)
    return mask


def listed_text(code: int, kind: Kind, members: tuple[str, ...]) -> str:
    """Return the text of an ENUM's position or a SET's mask."""
    if kind is Kind.ENUM:
        return members[code - 1] if 1 <= code <= len(members) else ""
    return ",".join(m for i, m in enumerate(members) if code >> i & 1)


def _listed(value: Any, column: Column, row: int) -> str:
    """Convert to ENUM or SET, by the members' text or by number."""
    type = column.type
    code: int | None = None
    if type.kind is Kind.ENUM and isinstance(value, Decimal) and value.is_nan():
        return ""
    if isinstance(value, str):
        code = (member_place if type.kind is Kind.ENUM else member_mask)(value, type.members)
    if code is None and (not isinstance(value, str) or value.strip().isdigit()):
        number = int(_number(value, "integer", column, row))
        least, most = (1, len(type.members)) if type.kind is Kind.ENUM else (0, 2 ** len(type.members) - 1)
        code = number if least <= number <= most else None
    if code is None:
        raise SqlError(*WARN_DATA_TRUNCATED, f"Data truncated for column '{column.name}' at row {row}")
    return listed_text(code, type.kind, type.members)


# ------------------------------------------------------------------ TIME
_CLOCK = re.compile(r"\s*(-?)(?:(\d+)\s+)?(\d+)(?::(\d{1,2})(?::(\d{1,2}))?)?(?:\.(\d*))?\s*")
LONGEST_TIME = timedelta(hours=838, minutes=59, seconds=59)


def parse_time(value: Any) -> timedelta | None:
    """Read a value as MySQL reads a TIME: '10:11:12.5', '1 10:11', '101112', a datetime.  Return None if it is none."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, ZEROS):
        return timedelta()
    if isinstance(value, datetime):
        return value - datetime(value.year, value.month, value.day)
    if isinstance(value, time):
        return datetime.combine(date(1970, 1, 1), value) - EPOCH
    if isinstance(value, date):
        return timedelta()
    text = value if isinstance(value, str) else _shown(value)
    found = _CLOCK.fullmatch(text)
    if found is None:
        moment = _datetime(text)
        return None if moment is None else parse_time(moment)
    sign, days, first, second, third, fraction = found.groups()
    if len(first) > 12 or len(days or "") > 7:
        return None
    if second is None and days is None:
        run = first.rjust(6, "0")
        hours, minutes, seconds = int(run[:-4]), int(run[-4:-2]), int(run[-2:])
    else:
        hours, minutes, seconds = int(first), int(second or 0), int(third or 0)
    if minutes > 59 or seconds > 59:
        return None
    micros = (fraction or "").ljust(7, "0")
    if int(days or 0) > 10**6:
        return None
    size = timedelta(days=int(days or 0), hours=hours, minutes=minutes, seconds=seconds,
                     microseconds=int(micros[:6]) + (micros[6] >= "5"))
    return -size if sign else size


def _time(value: Any, column: Column, row: int) -> timedelta:
    try:
        found = parse_time(value)
    except OverflowError:
        found = None
    if found is None or abs(found) > LONGEST_TIME + timedelta(seconds=1) - MICROSECOND:
        raise SqlError(*TRUNCATED_WRONG_VALUE,
                       f"Incorrect time value: '{value}' for column '{column.name}' at row {row}")
    unit = 10 ** (6 - column.type.scale)
    micros = abs(found) // MICROSECOND
    rounded = min((micros + unit // 2) // unit * unit, LONGEST_TIME // MICROSECOND if unit > 1 else micros)
    return timedelta(microseconds=-rounded if found < timedelta() else rounded)


def show_time(value: timedelta, scale: int) -> str:
    """Return a TIME as text with `scale` fractional digits: '-12:30:00', '838:59:59.5'."""
    micros = abs(value) // MICROSECOND
    seconds, fraction = divmod(micros, 1_000_000)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return ("-" if value < timedelta() else "") + shown + (f".{fraction:06}"[: scale + 1] if scale else "")


_OTHERS: dict[Kind, Callable[[Any, Column, int], Any]] = {Kind.TIME: _time, Kind.ENUM: _listed, Kind.SET: _listed}


# ------------------------------------------------------------------ dates and times
def _moment(value: Any, column: Column, row: int) -> date | datetime:
    """Convert to DATE or DATETIME: a Python date or datetime."""
    type = column.type
    if isinstance(value, ZEROS):
        return ZERO_DATE if type.kind is Kind.DATE else ZERO_DATETIME
    moment = _datetime(value)
    if moment is not None and type.kind is Kind.DATETIME:
        moment = _to_scale(moment, type.scale)
    if moment is None or (type.timestamp and not _TIMESTAMP_RANGE[0] <= moment <= _TIMESTAMP_RANGE[1]):
        raise _bad_moment(value, column, row)
    return moment.date() if type.kind is Kind.DATE else moment


def _bad_moment(value: Any, column: Column, row: int) -> SqlError:
    kind = "date" if column.type.kind is Kind.DATE else "datetime"
    where = f"for column '{column.name}' at row {row}"
    return SqlError(*TRUNCATED_WRONG_VALUE, f"Incorrect {kind} value: '{value}' {where}")


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
    """Read a text as MySQL reads a moment: '2020-01-02 03:04:05.678', '2020/1/2', '20200102030405'."""
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


def moment_prefix(text: str) -> str:
    """The date or moment with which a text begins, which may be none of the calendar; "" if it begins with none.

    >>> moment_prefix("2020-02-31 10:11 and more")
    '2020-02-31 10:11'
    """
    found = _PREFIX.match(text)
    return found[0] if found else ""


def _build(year: str, parts: list[int], fraction: str | None) -> datetime:
    number = int(year)
    if len(year) == 2:  # MySQL's rule: 00 to 69 mean 2000 to 2069
        number += 2000 if number < 70 else 1900
    micros = (fraction or "").ljust(7, "0")
    month, day, *clock = parts
    hour, minute, second = clock or (0, 0, 0)
    moment = datetime(number, month, day, hour, minute, second)
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
    """Round half up to `scale` fractional digits.  Return None if that leaves the calendar."""
    unit: int = 10 ** (6 - scale)
    if moment.microsecond % unit == 0:
        return moment
    micros = (moment.microsecond + unit // 2) // unit * unit
    try:
        return moment.replace(microsecond=0) + timedelta(microseconds=micros)
    except OverflowError:
        return None
