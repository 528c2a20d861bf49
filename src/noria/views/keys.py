"""Encodes key values as the folded codes by which a view is looked up, in a process that must not intern texts.

A value that no row can equal is no error: NULL, 1.5 for an integer column, or a text that was never interned.  For a
single key, `encode_key` raises `NoSuchKey` for the first two; such a text has the code NO_ID, which no key has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.batch import Codes
from noria.core.errors import SqlError, incorrect_value
from noria.core.errors.codes import TRUNCATED_WRONG_VALUE_FOR_FIELD, WRONG_ARGUMENTS
from noria.core.limits import MAX_INT, MIN_INT, NULL_CODE
from noria.core.symbols import NO_SYMBOLS, fold
from noria.core.types import Field, Kind
from noria.core.values import array_of, arrow_type, encode, from_arrow, texts_of
from noria.state.symbols.symbols import AttachedSymbols

NO_ID = -1  # the code of a text that is not in the symbol table; it may still be in the base tables


class NoSuchKey(Exception):
    """No row can equal this key."""


def encoder(field: Field, symbols: AttachedSymbols) -> Callable[[Any], int]:
    """A function from a Python value to its folded code.  It raises SqlError for a value of a wrong type."""
    type = field.type

    def text(value: Any) -> int:
        if type.is_bytes and isinstance(value, bytes):
            value = value.decode("latin-1")
        if not isinstance(value, str):
            raise _wrong(value, field)
        code = symbols.find(fold(value) if type.folds else value)
        return NO_ID if code is None else code

    def number(value: Any) -> int:
        if not isinstance(value, (int, float, Decimal)):
            raise _wrong(value, field)
        if type.kind is Kind.DOUBLE:
            return encode(value, type, NO_SYMBOLS)
        scaled = Decimal(value).scaleb(type.scale)
        if not scaled.is_finite() or scaled != scaled.to_integral_value() or not MIN_INT <= scaled <= MAX_INT:
            raise NoSuchKey
        return int(scaled)

    def moment(value: Any) -> int:
        if not isinstance(value, str if type.is_listed else timedelta if type.kind is Kind.TIME else date):
            raise _wrong(value, field)
        return encode(value, type, NO_SYMBOLS)

    return text if type.is_text else number if type.is_number else moment


def encode_key(key: Sequence[Any], encoders: Sequence[Callable[[Any], int]], fields: Sequence[Field]) -> list[int]:
    """The folded codes of one key.  Raises Nothing if no row can equal it, and error 1210 for a wrong number of
    values."""
    if len(key) != len(encoders):
        names = ", ".join(f.name for f in fields) or "none"
        raise SqlError(*WRONG_ARGUMENTS, f"the key has {len(key)} values, but the view is looked up by: {names}")
    codes = []
    for value, encode_value in zip(key, encoders, strict=True):
        if value is None:
            raise NoSuchKey
        codes.append(encode_value(value))
    return codes


def encode_columns(columns: Sequence[pa.Array | pa.ChunkedArray], fields: Sequence[Field], rows: int,
                   symbols: AttachedSymbols) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """The folded codes of Arrow key columns, of shape (columns, keys), and which keys hold a NULL.  Raises SqlError for
    a wrong number of columns or a wrong type."""
    if len(columns) != len(fields):
        raise SqlError(*WRONG_ARGUMENTS, f"the keys have {len(columns)} columns, but the view is looked up by "
                       f"{len(fields)}: {', '.join(f.name for f in fields)}")
    codes = np.empty((len(fields), rows), np.int64)
    nothing = np.zeros(rows, np.bool_)
    for i, (column, field) in enumerate(zip(columns, fields, strict=True)):
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if field.type.is_text:
            codes[i] = _text_codes(array, field, symbols)
        else:
            codes[i] = _plain_codes(array, field)
        if array.null_count:
            nothing |= codes[i] == NULL_CODE
    return codes, nothing


def _plain_codes(array: pa.Array, field: Field) -> Codes:
    try:
        return from_arrow(array, field.type, NO_SYMBOLS)
    except pa.ArrowException as e:
        raise SqlError(*TRUNCATED_WRONG_VALUE_FOR_FIELD,
                       f"Incorrect {field.type} key for column '{field.name}': {e}") from None


def _text_codes(array: pa.Array, field: Field, symbols: AttachedSymbols) -> Codes:
    try:
        texts = texts_of(array) if field.type.is_bytes else array.cast(pa.large_string())
    except pa.ArrowException as e:
        raise SqlError(*TRUNCATED_WRONG_VALUE_FOR_FIELD,
                       f"Incorrect string key for column '{field.name}': {e}") from None
    if field.type.folds:
        ascii_only = pc.all(pc.string_is_ascii(texts)).as_py() is not False
        texts = pc.ascii_lower(texts) if ascii_only else pa.array(
            [None if t is None else fold(t) for t in texts.to_pylist()], arrow_type(field.type))
    return symbols.find_many(texts)


def _wrong(value: Any, field: Field) -> SqlError:
    return incorrect_value(str(field.type), value, field.name, 1)


def key_columns(keys: Any, fields: Sequence[Field]) -> tuple[list[Any], int]:
    """The Arrow columns of keys in any supported form, and the number of keys."""
    if isinstance(keys, (pa.Table, pa.RecordBatch)):
        return (list(keys.columns), keys.num_rows) if fields else ([], keys.num_rows)
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        return [keys], len(keys)
    if isinstance(keys, np.ndarray):
        return [pa.array(keys)], len(keys)
    columns = list(zip(*keys, strict=True)) if keys else [()] * len(fields)
    return [array_of(c, f.type) for c, f in zip(columns, fields, strict=True)], len(keys)
