"""Decodes the parameters of COM_STMT_EXECUTE (NULL bitmap, types and values) to Python values.

Keeps true: a value decodes to the same Python value in any width in which a client sends it.  An impossible date
becomes text, so that its conversion to a column reports MySQL's error with the row.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from math import isfinite

from noria.core.errors import SqlError
from noria.core.errors.codes import PS_MANY_PARAM, UNKNOWN_STMT_HANDLER, WRONG_ARGUMENTS
from noria.server.mysql import rows
from noria.server.mysql.codec import PayloadReader, malformed, text
from noria.server.mysql.codec import prepared as prepared_ok
from noria.server.outcomes import PreparedHandle

MOST = 0xFFFF  # parameters of a statement
_INTEGERS = {1: 1, 2: 2, 3: 4, 8: 8, 9: 4, 13: 2}  # tiny, short, long, longlong, int24, year -> bytes
_LETTERS = {1: "b", 2: "h", 3: "i", 4: "f", 5: "d", 8: "q", 9: "i", 13: "h"}  # of `struct`
_FLOAT, _DOUBLE, _NULL, _TIME, _JSON = 4, 5, 6, 11, 245
_DATES = (7, 10, 12, 14)  # timestamp, date, datetime, newdate
_DATE, _NEWDATE = 10, 14
_DECIMALS = (0, 246)
_STRINGS = (15, 247, 248, 253, 254)  # varchar, enum, set, var_string, string
_BLOBS = (16, 249, 250, 251, 252, 255)  # bit, the blobs, geometry
_UNSIGNED = 0x80


@dataclass(slots=True)
class PreparedStatement:
    """A prepared statement of a connection, with the types of its last execution.  long_data: the parts of
    COM_STMT_SEND_LONG_DATA so far, by parameter."""

    prepared: PreparedHandle
    count: int
    asks: bool = False  # how many rows the last SELECT had
    types: bytes | None = None
    long_data: dict[int, bytearray] = field(default_factory=dict)
    failure: SqlError | None = None  # of COM_STMT_SEND_LONG_DATA, which has no reply: the next execution raises it


def canonical(data: bytes, count: int, types: bytes | None) -> tuple[bytes, bytes]:
    """Return the bytes after COM_STMT_EXECUTE's fixed part in self-contained form, and the parameters' types.

    A client sends the types with the first execution and may omit them later.  types: those of the last execution.
    Self-contained bytes always have them: NULL bitmap, a byte 1, types, values.
    """
    bitmap = (count + 7) // 8
    if len(data) <= bitmap:
        raise malformed("the parameters end before their types")
    if data[bitmap]:
        types = data[bitmap + 1:bitmap + 1 + 2 * count]
        if len(types) < 2 * count:
            raise malformed("the parameters end within their types")
        return data, types
    if types is None:
        raise malformed("the first execution of a statement has to send its parameters' types")
    return b"".join((data[:bitmap], b"\x01", types, data[bitmap + 1:])), types


def decode(data: bytes, count: int, long_data: Mapping[int, bytearray]) -> list[object]:
    """Return the values of self-contained parameters.  long_data: values that were sent in parts before, by number."""
    bitmap = (count + 7) // 8
    start = bitmap + 1 + 2 * count
    fixed = _fixed(data[bitmap + 1:start])
    if fixed is not None and len(data) == start + fixed.size and not any(data[:bitmap]) and not long_data:
        return list(fixed.unpack_from(data, start))
    reader = PayloadReader(data, start)
    values: list[object] = []
    for i in range(count):
        at = bitmap + 1 + 2 * i
        if i in long_data:
            value_bytes = bytes(long_data[i])
            values.append(value_bytes if data[at] in _BLOBS else _string(value_bytes))
        elif data[i // 8] >> i % 8 & 1:
            values.append(None)
        else:
            values.append(_value(reader, data[at], bool(data[at + 1] & _UNSIGNED)))
    if reader.left:
        raise malformed(f"{reader.left} bytes follow the last parameter")
    return values


@lru_cache(maxsize=1024)
def _fixed(types: bytes) -> struct.Struct | None:
    """Return the layout of values of these types if all are numbers of a fixed width, else None."""
    kinds = types[::2]
    if not all(kind in _LETTERS for kind in kinds):
        return None
    letters = [_LETTERS[kind].upper() if flags & _UNSIGNED and kind in _INTEGERS else _LETTERS[kind]
               for kind, flags in zip(kinds, types[1::2], strict=True)]
    return struct.Struct("<" + "".join(letters))


def _number(value: float) -> float:
    if not isfinite(value):
        raise SqlError(*WRONG_ARGUMENTS, f"Incorrect arguments to mysqld_stmt_execute: {value} is no number")
    return value


def _value(reader: PayloadReader, kind: int, unsigned: bool) -> object:
    if kind in _INTEGERS:
        return reader.integer(_INTEGERS[kind], signed=not unsigned)
    if kind in _STRINGS or kind == _JSON:
        return _string(reader.lenenc())
    if kind == _DOUBLE:
        return _number(struct.unpack("<d", reader.take(8))[0])
    if kind == _FLOAT:
        return _number(struct.unpack("<f", reader.take(4))[0])
    if kind in _DECIMALS:
        return _decimal(text(reader.lenenc()))
    if kind in _DATES:
        return _date(PayloadReader(reader.lenenc()), kind in (_DATE, _NEWDATE))
    if kind == _TIME:
        return _time(PayloadReader(reader.lenenc()))
    if kind in _BLOBS:
        return reader.lenenc()
    if kind == _NULL:
        return None
    raise malformed(f"no parameter type has the number {kind}")


def _string(data: bytes) -> str | bytes:
    """Return a text, or bytes if it is not UTF-8.  Some clients send bytes as texts; other columns than binary ones
    reject them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


_DIGITS = re.compile(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?", re.ASCII)


def _decimal(digits: str) -> object:
    """Return a number.  A text that is none, or is too long for any type, is returned for the column to reject."""
    return Decimal(digits) if _DIGITS.fullmatch(digits) else digits


def _date(reader: PayloadReader, day_only: bool) -> object:
    if reader.left not in (0, 4, 7, 11):
        raise malformed(f"a date of {reader.left} bytes")
    year, month, day = (reader.integer(2), reader.integer(1), reader.integer(1)) if reader.left else (0, 0, 0)
    hour, minute, second = (reader.integer(1), reader.integer(1), reader.integer(1)) if reader.left else (0, 0, 0)
    micros = reader.integer(4) if reader.left else 0
    try:
        if day_only:
            return date(year, month, day)
        return datetime(year, month, day, hour, minute, second, micros)
    except (ValueError, OverflowError):  # the latter for microseconds beyond 31 bits
        shown = f"{year:04}-{month:02}-{day:02}"
        if day_only:
            return shown
        return f"{shown} {hour:02}:{minute:02}:{second:02}" + (f".{micros:06}" if micros else "")


def _time(reader: PayloadReader) -> str:
    """Return a TIME as text, such as "-26:03:04.000500"."""
    if reader.left not in (0, 8, 12):
        raise malformed(f"a time of {reader.left} bytes")
    if not reader.left:
        return "00:00:00"
    sign, days = "-" if reader.integer(1) else "", reader.integer(4)
    hours, minutes, seconds = reader.integer(1), reader.integer(1), reader.integer(1)
    micros = f".{reader.integer(4):06}" if reader.left else ""
    return f"{sign}{days * 24 + hours:02}:{minutes:02}:{seconds:02}{micros}"


# ------------------------------------------------------------------ prepared statements
def described(number: int, prepared: PreparedHandle, end: list[bytes]) -> list[bytes]:
    """The payloads of the reply to COM_STMT_PREPARE.  end: those after a list of definitions."""
    payloads = [prepared_ok(number, len(prepared.fields), prepared.parameters, 0)]
    if prepared.parameters:
        payloads += [rows.parameter_definition()] * prepared.parameters + end
    return payloads + [rows.column_definition(f) for f in prepared.fields] + end if prepared.fields else payloads


def too_many(parameters: int) -> SqlError:
    return SqlError(*PS_MANY_PARAM, f"Prepared statement contains too many placeholders ({parameters}; at most {MOST});"
                                    " insert fewer rows at a time")


def unknown_statement(payload: bytes, where: str) -> SqlError:
    """The error for a command about a statement that the connection does not have."""
    number = int.from_bytes(payload[1:5], "little")
    return SqlError(*UNKNOWN_STMT_HANDLER, f"Unknown prepared statement handler ({number}) given to {where}")
