"""Encodes the parameters of a statement in JSON.  Numbers, texts, true, false and null are JSON values, others objects:

    {"base64": "AP8="}   {"decimal": "1.50"}   {"date": "2024-02-03"}   {"datetime": "2024-02-03 04:05:06"}
    {"time": "-30:00:00"}

Keeps true: for a statement, a decoded value is equal to the value that was encoded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import ILLEGAL_VALUE_FOR_TYPE, WRONG_ARGUMENTS
from noria.core.expressions.coerce import parse_time, show_time


def encoded(number: int, value: Any) -> Any:
    """Return a parameter as a JSON value.  number: its position from 1, for the error.  Raises SqlError 1210."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime):
        return {"datetime": value.isoformat(" ")}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, time):
        return value.isoformat()  # a text: `parse_time` reads it as the same TIME
    if isinstance(value, timedelta):
        return {"time": show_time(value, 6)}
    raise SqlError(*WRONG_ARGUMENTS, f"Incorrect arguments to EXECUTE: parameter {number} is a {type(value).__name__}; "
                                     "give numbers, texts, bytes, dates, times or NULL")


def _time(text: str) -> timedelta:
    found = parse_time(text)
    if found is None:
        raise ValueError(text)
    return found


_TYPES: dict[str, Callable[[str], Any]] = {
    "base64": lambda text: base64.b64decode(text, validate=True), "decimal": Decimal, "date": date.fromisoformat,
    "datetime": datetime.fromisoformat, "time": _time}


def decoded(values: list[Any]) -> list[Any]:
    """Return the parameters of a request.  Raises SqlError 1210 or 1367."""
    return [_decoded(number, value) for number, value in enumerate(values, 1)]


def _decoded(number: int, value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind in _TYPES and isinstance(text, str):
            return _typed(number, kind, text)
    if isinstance(value, (list, dict)):
        raise SqlError(*WRONG_ARGUMENTS,
                       f"parameter {number} is a {'list' if isinstance(value, list) else 'dictionary'}: "
                       "a parameter is one value (text, number, true, false or null)")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise SqlError(*ILLEGAL_VALUE_FOR_TYPE, f"Illegal double value found in parameter {number}: it is beyond the "
                                                "greatest DOUBLE")
    if isinstance(value, int) and not -2**63 <= value < 2**64:
        return Decimal(value)  # MySQL reads such a large number as DECIMAL
    return value


def _typed(number: int, kind: str, text: str) -> Any:
    try:
        return _TYPES[kind](text)
    except (ValueError, binascii.Error, InvalidOperation):
        raise SqlError(*WRONG_ARGUMENTS, f"parameter {number}: '{text[:100]}' is no {kind}") from None
