"""Converts clients' values to keys, by MySQL's rules for `column = value`.

A value that the column's type cannot hold equals no row.  The answer is then empty, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from itertools import product
from math import prod
from typing import Any

import pyarrow as pa

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import TRUNCATED_WRONG_VALUE_FOR_FIELD, WRONG_ARGUMENTS, WRONG_VALUE
from noria.core.expressions.coerce import bits_of_text, coerce, year_of
from noria.core.expressions.functions import HexLiteral
from noria.core.expressions.zero_date import ZERO_DATE, ZERO_DATETIME, ZEROS, is_zero_text
from noria.core.limits import LOOKUP_KEYS, MAX_INT, MIN_INT
from noria.core.symbols import NO_SYMBOLS, fold
from noria.core.types import DATETIME, Column, Field, Kind
from noria.core.values import arrow_type, encode, encode_double
from noria.plan.lookups import Lookup, NullSafe, Range

_EXACT = Context(prec=100)
_PREFIX = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class _NoRow:
    """The class of NO_ROW, which stands for a value that equals no row."""


NO_ROW = _NoRow()


def key_of(values: Sequence[Any], fields: Sequence[Field]) -> tuple[Any, ...] | None:
    """Return the values as the key columns store them; None if no row can have this key.  Raises SqlError 1235 for a
    comparison that Noria does not support, and 1525 for a text that is no date."""
    if len(values) == 1 and type(values[0]) is int and fields[0].type.kind is Kind.INT and (
            fields[0].type.declared != "year"):
        return (values[0],) if MIN_INT <= values[0] <= MAX_INT else None
    key = tuple(_comparable(v, f) for v, f in zip(values, fields, strict=True))
    return None if NO_ROW in key else key


def keys_of(lookups: Sequence[Lookup], fields: Sequence[Field]) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the distinct keys of bound lookups in order, and whether a None in a key matches NULL (`<=>`).  Raises
    SqlError for more than LOOKUP_KEYS keys."""
    choices = [_choices(a, f) for a, f in zip(lookups, fields, strict=True)]
    number = prod(map(len, choices))
    if number > LOOKUP_KEYS:
        raise not_supported(f"a lookup of {number} keys ({' x '.join(str(len(c)) for c in choices)})",
                            f"at most {LOOKUP_KEYS} at once")
    return list(product(*choices)), any(isinstance(a, NullSafe) for a in lookups)


def looked_up(lookups: Sequence[Lookup], fields: Sequence[Field]
              ) -> tuple[list[tuple[Any, ...]], bool, tuple[int, int] | None]:
    """Return (keys, nulls, None) as `keys_of` does, or ([], False, range).  No keys and no range: no row can match."""
    first = lookups[0] if lookups else None
    if isinstance(first, Range):
        return [], False, range_of(first, fields[0])
    return *keys_of(lookups, fields), None


def are_one_key(lookups: Sequence[Lookup], fields: Sequence[Field]) -> bool:
    """True if each column that is compared with one value (not with several) has at most one key value."""
    single = [(a, f) for a, f in zip(lookups, fields, strict=True) if not a.several]
    try:
        return all(len(_choices(a, f)) <= 1 for a, f in single)
    except SqlError:
        return False


def range_of(lookup: Range, field: Field) -> tuple[int, int] | None:
    """Return the least and greatest code within all bounds of a bound range; None if the range is empty."""
    low, high = MIN_INT, MAX_INT
    for bound in lookup.bounds:
        if bound.value is None:
            return None
        code = _place(bound.value, field)
        if bound.op == "gt":
            low = max(low, _floor(code) + 1)
        elif bound.op == "ge":
            low = max(low, -_floor(-code))
        elif bound.op == "lt":
            high = min(high, -_floor(-code) - 1)
        else:
            high = min(high, _floor(code))
    return (low, high) if low <= high else None


def _floor(number: Decimal) -> int:
    if not number.is_finite():
        return 2 * MAX_INT if number > 0 else 2 * MIN_INT
    return int(number.to_integral_value(ROUND_FLOOR))


def _place(value: Any, field: Field) -> Decimal:
    """Return the position of a value among the column's codes.  It may be between two codes."""
    if isinstance(value, HexLiteral) and field.type.is_number:
        value = int(value)
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "replace")
    if field.type.kind in (Kind.DATE, Kind.DATETIME):
        precise = replace(DATETIME, scale=6)
        return Decimal(encode(_moment(value, Field(field.name, precise)), precise, NO_SYMBOLS))
    _check_number(value, field)
    number = _year(value, _number(value) if isinstance(value, str) else value, field)
    if field.type.kind is Kind.DOUBLE:
        return Decimal(encode_double(float(number)))
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    return exact.scaleb(field.type.scale, _EXACT)


def _check_number(value: Any, field: Field) -> None:
    """Raise SqlError if a number column is compared with a date or a time."""
    if isinstance(value, (date, datetime, timedelta)):
        what = "time" if isinstance(value, timedelta) else "date"
        raise not_supported(f"comparing the number column '{field.name}' with a {what}")


def _choices(lookup: Lookup, field: Field) -> list[Any]:
    """Return the distinct values of one key column that a bound lookup allows."""
    values = lookup.values
    if isinstance(lookup, NullSafe) and values == (None,):
        return [None]
    if not _are_stored(values, field):
        values = tuple(_comparable(v, field) for v in values)
    by = {fold(v) if field.type.folds and isinstance(v, str) else v: v for v in values if v is not NO_ROW}
    return list(by.values())


def _are_stored(values: Sequence[Any], field: Field) -> bool:
    """True if the column stores all values unchanged.  Checks thousands of values in one pass."""
    if field.type.declared == "year":
        return False
    if field.type.kind is Kind.INT:
        return set(map(type, values)) == {int} and min(values) >= MIN_INT and max(values) <= MAX_INT
    plain = field.type.is_text and not field.type.is_bytes and not field.type.is_json
    return plain and set(map(type, values)) == {str}


def _comparable(value: Any, field: Field) -> Any:
    if value is None:
        return NO_ROW
    kind = field.type.kind
    if field.type.is_bytes or field.type.is_listed or kind is Kind.TIME or field.type.is_json:
        return _as_stored(value, field)
    if isinstance(value, HexLiteral) and field.type.is_number:
        value = int(value)
    if field.type.is_bit and isinstance(value, (str, bytes)) and bits_of_text(value) < 2**field.type.precision:
        return _exact(bits_of_text(value), field)
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "replace")
    if kind is Kind.TEXT:
        if not isinstance(value, str):
            raise not_supported(f"comparing the text column '{field.name}' with the number {value}",
                                "give the parameter as a string")
        return value
    if kind in (Kind.DATE, Kind.DATETIME):
        return _moment(value, field)
    _check_number(value, field)
    if kind is Kind.DOUBLE:
        return _number(value) if isinstance(value, str) else float(value)
    return _exact(_year(value, _number(value) if isinstance(value, str) else value, field), field)


def _year(value: Any, number: Any, field: Field) -> Any:
    """The year that a number beside a YEAR means; any other number as it is."""
    return year_of(number, value) if field.type.declared == "year" and isinstance(number, int) else number


def _as_stored(value: Any, field: Field) -> Any:
    """Return the value as the column would store it; NO_ROW if it cannot."""
    if field.type.is_json:
        raise not_supported(f"looking rows up by the JSON column '{field.name}'", "compare what JSON_EXTRACT gives")
    try:
        return coerce(value, Column(field.name, replace(field.type, length=0)), 1)
    except SqlError:
        return NO_ROW


def _number(text: str) -> float | int:
    """Return the number at the beginning of a text; 0 if the text begins with none."""
    m = _PREFIX.match(text)
    if m is None:
        return 0
    number = float(m[0])
    return int(number) if number.is_integer() else number


def _exact(value: Any, field: Field) -> Any:
    if isinstance(value, (date, datetime)):
        raise not_supported(f"comparing the number column '{field.name}' with a date")
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        return NO_ROW
    scaled = number.scaleb(field.type.scale)
    if scaled != scaled.to_integral_value() or not MIN_INT <= scaled <= MAX_INT:
        return NO_ROW
    return int(number) if field.type.kind is Kind.INT else number


def _moment(value: Any, field: Field) -> Any:
    is_date = field.type.kind is Kind.DATE
    if isinstance(value, ZEROS) or is_zero_text(value):
        return ZERO_DATE if is_date else ZERO_DATETIME
    if type(value) is datetime and is_date:
        return value.date() if value == datetime(value.year, value.month, value.day) else NO_ROW
    if type(value) is date:
        return value if is_date else datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        return value
    full = Column(field.name, DATETIME if is_date else field.type)
    try:
        moment = coerce(value, full, 1)
    except SqlError:
        raise SqlError(*WRONG_VALUE, f"Incorrect {'DATE' if is_date else 'DATETIME'} value: '{value}'") from None
    return _moment(moment, field) if is_date else moment


def typed_keys(keys: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Return the keys with the types of the view's key columns, matched by position.  Raises SqlError 1210 for another
    number of columns, and 1366 if a column cannot be converted."""
    if keys.num_columns != len(fields) and fields:
        raise SqlError(*WRONG_ARGUMENTS,
                       f"the keys have {keys.num_columns} columns and the view's key has {len(fields)}: "
                       + ", ".join(f.name for f in fields))
    if not fields:
        return keys
    columns = []
    for column, field in zip(keys.columns, fields, strict=True):
        try:
            columns.append(column.cast(arrow_type(field.type)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise SqlError(*TRUNCATED_WRONG_VALUE_FOR_FIELD,
                           f"the keys for column '{field.name}' are {column.type}, which does not "
                           f"become {field.type}: {e}") from None
    return pa.Table.from_arrays(columns, names=[f"key{i}" for i in range(len(columns))])
