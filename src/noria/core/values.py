"""Converts SQL values to int64 codes and back: Python values, Arrow arrays, and values from clients.

A value has the same code in states, views and packets, and on disk except for text:

* NULL is NULL_CODE.  An evaluation error is ERROR_CODE; reading it raises MySQL's error 1690.
* INT is itself.  DOUBLE is its bits, flipped so that they keep the order; -0.0 becomes 0.0.
* DECIMAL(p,s) is the value times 10**s.
* DATE and DATETIME are microseconds since 1970-01-01, DATE at midnight; the zero date is ZERO_CODE.  TIME is
  microseconds.
* ENUM is the position of its member, from 1.  SET is a mask of members.  Clients see both as text.
* TEXT is an id of the symbol table.  Bytes are, too, as a text of the characters U+0000 to U+00FF.

Keeps true: for each kind but TEXT, equal values have equal codes, and codes have the order of the values, NULL least.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noria.core.batch import Codes
from noria.core.errors import SqlError, no_default, null_not_allowed, value_overflow
from noria.core.expressions.coerce import (
    EPOCH,
    MAX_TEXT_BYTES,
    MICROSECOND,
    coerce,
    integer_bounds,
    listed_text,
    member_mask,
    member_place,
)
from noria.core.expressions.zero_date import ZERO_CODE, ZERO_DATE, ZERO_DATETIME, ZEROS
from noria.core.limits import ERROR_CODE, MAX_DECIMAL_DIGITS, MAX_INT, NULL_CODE
from noria.core.statements import DEFAULT
from noria.core.symbols import NO_SYMBOLS, Symbols
from noria.core.types import BIGINT, DOUBLE, MOMENTS, Column, Kind, SqlType

Doubles = npt.NDArray[np.float64]
DAY_MICROS = 86_400_000_000
_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")
_FLIP = np.int64(MAX_INT)
ARROW_DIGITS = 38  # of a decimal128
SMALL = 8  # values up to which a Python loop is faster than building an Arrow array


# ------------------------------------------------------------------ one value
def encode(value: Any, type: SqlType, symbols: Symbols) -> int:
    """Return the code of a Python value of the type (int, float, Decimal, str, date, datetime) or None."""
    if value is None:
        return NULL_CODE
    kind = type.kind
    if kind is Kind.INT:
        return int(value)
    if kind is Kind.TEXT:
        return symbols.intern(value.decode("latin-1") if type.is_bytes else value)
    if kind is Kind.DOUBLE:
        return encode_double(float(value))
    if kind is Kind.TIME:
        return int(value // MICROSECOND)
    if type.is_listed:
        return _listed_code(value, type)
    if kind is Kind.DECIMAL:
        scaled = Decimal(value).scaleb(type.scale)
        return int(scaled.to_integral_value(ROUND_HALF_UP))
    if kind is Kind.DATE:
        return _day(value)
    return (value - EPOCH) // MICROSECOND if isinstance(value, datetime) else _day(value)


def _listed_code(value: str, type: SqlType) -> int:
    """Return the code of an ENUM's member or a SET's members, by text; 0 if there is no such member."""
    return (member_place if type.kind is Kind.ENUM else member_mask)(value, type.members) or 0


def _day(value: date) -> int:
    return (value.toordinal() - _EPOCH_DAY) * DAY_MICROS


_EPOCH_DAY = EPOCH.toordinal()


def decode(code: int, type: SqlType, symbols: Symbols) -> Any:
    """Return the Python value of a code.  Raises SqlError 1690 for ERROR_CODE."""
    if code <= ERROR_CODE:
        if code == NULL_CODE:
            return None
        raise evaluation_error(type)
    kind = type.kind
    if kind is Kind.INT:
        return code
    if kind is Kind.TEXT:
        return symbols.text(code).encode("latin-1") if type.is_bytes else symbols.text(code)
    if kind is Kind.DOUBLE:
        return decode_double(code)
    if kind is Kind.TIME:
        return timedelta(microseconds=code)
    if type.is_listed:
        return listed_text(code, kind, type.members)
    if kind is Kind.DECIMAL:
        return Decimal(code).scaleb(-type.scale)
    if code == ZERO_CODE:
        return ZERO_DATE if kind is Kind.DATE else ZERO_DATETIME
    if kind is Kind.DATE:
        return date.fromordinal(code // DAY_MICROS + _EPOCH_DAY)
    return EPOCH + timedelta(microseconds=code)


def evaluation_error(type: SqlType) -> SqlError:
    """The error for a read of an ERROR_CODE of this type."""
    return value_overflow({Kind.INT: "BIGINT", Kind.TEXT: "CHAR"}.get(type.kind, type.kind.name))


def encode_double(value: float) -> int:
    bits: int = _LONG.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ MAX_INT


def decode_double(code: int) -> float:
    value: float = _DOUBLE.unpack(_LONG.pack(code if code >= 0 else code ^ MAX_INT))[0]
    return value


# ------------------------------------------------------------------ arrays
def encode_doubles(values: Doubles) -> Codes:
    """Return the codes of float64 values.  -0.0 becomes 0.0."""
    bits = (values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & _FLIP)


def decode_doubles(codes: Codes) -> Doubles:
    """Return the float64 values of codes.  The caller must mask NULL_CODE and ERROR_CODE."""
    return (codes ^ ((codes >> 63) & _FLIP)).view(np.float64)


def arrow_type(type: SqlType) -> pa.DataType:
    """Return the Arrow type of a SQL type.  INT of any width is int64, like codes; Spark has no unsigned types."""
    kind = type.kind
    if kind is Kind.INT:
        return pa.int64()
    if kind is Kind.TEXT:
        return pa.large_binary() if type.is_bytes else pa.large_string()
    if type.is_listed:
        return pa.large_string()
    if kind is Kind.TIME:
        return pa.duration("us")
    if kind is Kind.DOUBLE:
        return pa.float64()
    if kind is Kind.DECIMAL:
        return pa.decimal128(min(max(type.precision, 1), ARROW_DIGITS), type.scale)
    return pa.date32() if kind is Kind.DATE else pa.timestamp("us")


def array_of(values: Sequence[Any], type: SqlType) -> pa.Array:
    """Build an array of `arrow_type(type)` from Python values, the zero date among them."""
    if type.kind in MOMENTS and any(isinstance(v, ZEROS) for v in values):
        codes = np.array([NULL_CODE if v is None else encode(v, type, NO_SYMBOLS) for v in values], np.int64)
        return to_arrow(codes, type, NO_SYMBOLS)
    return pa.array(values, arrow_type(type))


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the values of a column.  The zero date, which neither Arrow nor Python has, is ZERO_DATE."""
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        if not (pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)):
            raise
        is_day = pa.types.is_date32(column.type)
        codes = column.cast(pa.int32() if is_day else pa.int64())
        zero = pc.equal(codes, ZERO_CODE // DAY_MICROS if is_day else ZERO_CODE)
        rest = pc.if_else(zero, None, column).to_pylist()
        value = ZERO_DATE if is_day else ZERO_DATETIME
        found = [value if z else v for v, z in zip(rest, zero.to_pylist(), strict=True)]
    return found


def to_arrow(codes: Codes, type: SqlType, symbols: Symbols) -> pa.Array:
    """Convert codes to an array of `arrow_type(type)`.  Raises SqlError 1690 if a code is ERROR_CODE."""
    nulls: npt.NDArray[np.bool_] | None = None
    if len(codes) and int(codes.min()) <= ERROR_CODE:
        if bool((codes == ERROR_CODE).any()):
            raise evaluation_error(type)
        nulls = codes == NULL_CODE
    kind = type.kind
    if kind is Kind.TEXT:
        return bytes_of(symbols.texts(codes)) if type.is_bytes else symbols.texts(codes)
    if kind is Kind.INT:
        return pa.array(codes, mask=nulls)
    if kind is Kind.TIME:
        return pa.array(codes, mask=nulls).cast(pa.duration("us"))
    if type.is_listed:
        return pa.array([decode(c, type, symbols) for c in codes.tolist()], pa.large_string())
    if kind is Kind.DOUBLE:
        return pa.array(decode_doubles(codes), mask=nulls)
    if kind is Kind.DATE:
        days = np.where(nulls, 0, codes) if nulls is not None else codes
        return pa.array((days // DAY_MICROS).astype(np.int32), mask=nulls).cast(pa.date32())
    if kind is Kind.DATETIME:
        return pa.array(codes, mask=nulls).cast(pa.timestamp("us"))
    return _decimals(codes, nulls, arrow_type(type))


def bytes_of(texts: pa.Array) -> pa.Array:
    """Convert texts that represent bytes to a large_binary array."""
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return texts.cast(pa.large_binary())
    return pa.array([None if t is None else t.encode("latin-1") for t in texts.to_pylist()], pa.large_binary())


def texts_of(data: pa.Array) -> pa.Array:
    """Convert bytes to the texts that represent them: the inverse of `bytes_of`.  Text is encoded as UTF-8 first."""
    if not (pa.types.is_binary(data.type) or pa.types.is_large_binary(data.type)):
        data = data.cast(pa.large_string()).cast(pa.large_binary())
    return pa.array([None if b is None else b.decode("latin-1") for b in data.to_pylist()], pa.large_string())


def _decimals(codes: Codes, nulls: npt.NDArray[np.bool_] | None, type: pa.DataType) -> pa.Array:
    """Build a decimal128 array from unscaled int64 values: the high half repeats the sign."""
    limbs = np.empty((len(codes), 2), np.int64)
    limbs[:, 0] = codes
    np.right_shift(codes, 63, out=limbs[:, 1])
    valid = None if nulls is None else pa.array(~nulls).buffers()[1]
    return pa.Array.from_buffers(type, len(codes), [valid, pa.py_buffer(limbs)])


def from_arrow(array: pa.Array | pa.ChunkedArray, type: SqlType, symbols: Symbols) -> Codes:
    """Convert an Arrow array to codes.  Raises ArrowInvalid if it does not cast to `arrow_type(type)` without loss."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        codes = from_arrow(array.dictionary, type, symbols)
        index = pc.fill_null(array.indices, len(codes)).to_numpy(zero_copy_only=False)
        picked: Codes = np.append(codes, np.int64(NULL_CODE))[index]
        return picked
    if type.is_text:
        return symbols.intern_many(texts_of(array) if type.is_bytes else array)
    if type.is_listed:
        places = {m: _listed_code(m, type) for m in array.unique().to_pylist() if m is not None}
        return np.array([NULL_CODE if v is None else places[v] for v in array.to_pylist()], np.int64)
    wanted = arrow_type(type)
    if array.type != wanted:
        array = _cast(array, wanted)
    if type.kind is Kind.DECIMAL:
        limbs = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
        codes = limbs[:, 0]
        if type.precision > MAX_DECIMAL_DIGITS and (limbs[:, 1] != codes >> 63).any():
            raise pa.ArrowInvalid("a decimal has more digits than a code")
    elif type.kind is Kind.DOUBLE:
        codes = encode_doubles(_numbers(array, 0.0))
    elif type.kind is Kind.DATE:
        codes = _numbers(array.view(pa.int32()), 0).astype(np.int64) * DAY_MICROS
    else:
        codes = _numbers(array.view(pa.int64()), NULL_CODE)
    if array.null_count:
        codes = np.where(array.is_null().to_numpy(zero_copy_only=False), np.int64(NULL_CODE), codes)
    return np.ascontiguousarray(codes, np.int64)


def _numbers(array: pa.Array, null: float) -> Any:
    return (pc.fill_null(array, null) if array.null_count else array).to_numpy(zero_copy_only=False)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast an array with Arrow's checks.  A time with a zone becomes UTC without a zone."""
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC")).cast(pa.timestamp(array.type.unit))
    return array.cast(wanted)


# ------------------------------------------------------------------ what clients send
def convert(values: Sequence[Any] | pa.Array, column: Column, first_row: int, symbols: Symbols) -> Codes:
    """Convert a client's values for a column to codes, with MySQL's strict checks.

    values: an Arrow array, or Python's bool, int, float, Decimal, str, bytes, date, datetime, None and `DEFAULT`.
    first_row: the row number of the first value, for errors.
    Raises SqlError for a value that does not fit, and for NULL in a NOT NULL column.  NULL in an AUTO_INCREMENT column
    requests a number: its code is NULL_CODE.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        codes = _convert_arrow(values, column, first_row, symbols)
    elif (few := _few_integers(values, column)) is not None:
        codes = few
    elif len(values) <= SMALL:
        codes = _convert_each(values, column, first_row, symbols)
    else:
        fast = _convert_clean(values, column, symbols)
        codes = _convert_each(values, column, first_row, symbols) if fast is None else fast
    return codes


def default_code(column: Column, symbols: Symbols) -> int:
    """Return the code of an omitted value; NULL_CODE for an AUTO_INCREMENT column, which then assigns a number.

    Raises SqlError 1364 if the column has no default.
    """
    if column.has_default:
        value = column.default
        return NULL_CODE if value is None else encode(coerce(value, column, 1), column.type, symbols)
    if column.nullable or column.auto_increment or column.dropped:
        return NULL_CODE
    raise no_default(column.name)


def _convert_each(values: Sequence[Any], column: Column, first_row: int, symbols: Symbols) -> Codes:
    """Convert each value by itself: the slow and exact path."""
    good = [_coerced(value, column, row) for row, value in enumerate(values, first_row)]
    type = column.type
    return np.array([encode(value, type, symbols) for value in good], np.int64)


def _coerced(value: Any, column: Column, row: int) -> Any:
    """Return the value as one of the column's type, or None."""
    if value is None:
        if not (column.nullable or column.auto_increment):
            raise null_not_allowed(column.name)
        return None
    if value is DEFAULT:
        if not (column.has_default or column.nullable or column.auto_increment):
            raise no_default(column.name)
        value = column.default if column.has_default else None
        return None if value is None else coerce(value, column, row)
    return coerce(value, column, row)


FEW_INTS = 256
_CLEAN = {Kind.INT: pa.int64(), Kind.TEXT: pa.large_string(), Kind.DOUBLE: pa.float64(),
          Kind.DATE: pa.date32(), Kind.DATETIME: pa.timestamp("us")}  # TIME, ENUM and SET go one by one
_PYTHON: dict[Kind, tuple[type, ...]] = {
    Kind.INT: (int,), Kind.TEXT: (str,), Kind.DOUBLE: (float, int),
    Kind.DATE: (date,), Kind.DATETIME: (datetime,)}


def _few_integers(values: Sequence[Any], column: Column) -> Codes | None:
    """Convert up to FEW_INTS integers in the column's range without Arrow, which is faster; otherwise return None."""
    if column.type.kind is not Kind.INT or len(values) > FEW_INTS or set(map(type, values)) != {int} \
            or column.type.declared:
        return None
    least, most = integer_bounds(column)
    return np.array(values, np.int64) if least <= min(values) and max(values) <= most else None


def _convert_clean(values: Sequence[Any], column: Column, symbols: Symbols) -> Codes | None:
    """Convert many values of exactly the column's Python type at once.  Return None if the slow path is needed."""
    kind = column.type.kind
    wanted = None if particular(column.type) else _PYTHON.get(kind)
    if wanted is None or not set(map(type, values)) <= {*wanted, type(None)}:
        return None
    try:
        array = pa.array(values, _CLEAN[kind])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return None
    return _checked(array, column, symbols)


def particular(type: SqlType) -> bool:
    """True if each value needs its own conversion or check: JSON, bytes, YEAR, BIT, FLOAT, or a limit in bytes."""
    return type.declared in ("json", "year", "bit", "tinytext") or type.is_bytes or (
        type.kind is Kind.DOUBLE and (type.bits == 32 or type.precision > 0))


def _checked(array: pa.Array, column: Column, symbols: Symbols) -> Codes | None:
    """Convert an array of the column's Arrow type.  Return None if the slow path must check a value."""
    type = column.type
    if array.null_count and not (column.nullable or column.auto_increment):
        return None
    if type.kind is Kind.TEXT:
        if len(array) and _longest(array) > (type.length or MAX_TEXT_CHARS):
            return None
        if type.declared == "char" and pc.any(pc.ends_with(array, " ")).as_py():
            return None
        return symbols.intern_many(array)
    codes = from_arrow(array, type, symbols)
    real = codes[codes != NULL_CODE] if array.null_count else codes
    if len(real) + array.null_count != len(codes):  # a value is -2**63, which is NULL_CODE
        return None
    if len(real) and not _in_range(real, column):
        return None
    return codes


MAX_TEXT_CHARS = MAX_TEXT_BYTES // 4  # this many characters of any kind fit


def _longest(array: pa.Array) -> int:
    """Return an upper bound of the number of characters of the longest text."""
    longest: int = pc.max(pc.binary_length(array)).as_py() or 0
    return longest if longest < 256 else pc.max(pc.utf8_length(array)).as_py()


def _in_range(codes: Codes, column: Column) -> bool:
    """True if the column's declaration allows these codes without rounding."""
    type = column.type
    low, high = int(codes.min()), int(codes.max())
    if type.kind is Kind.INT:
        least, most = integer_bounds(column)
        return least <= low and high <= most
    if type.kind is Kind.DOUBLE:
        return low >= MIN_FINITE and high <= MAX_FINITE and not (type.unsigned and low < 0)
    if type.kind is Kind.DECIMAL:
        return -(10**type.precision) < low and high < 10**type.precision and not (type.unsigned and low < 0)
    if type.kind is Kind.TIME:
        return type.scale == 6
    if type.kind is Kind.DATETIME:
        unit: int = 10 ** (6 - type.scale)
        return (unit == 1 or not bool((codes % unit).any())) and not (
            type.timestamp and (low < 1_000_000 or high >= TIMESTAMP_END))
    return True


MAX_FINITE = encode_double(float.fromhex("0x1.fffffffffffffp+1023"))
MIN_FINITE = encode_double(-float.fromhex("0x1.fffffffffffffp+1023"))
TIMESTAMP_END = (2**31) * 1_000_000


def _convert_arrow(
    array: pa.Array | pa.ChunkedArray, column: Column, first_row: int, symbols: Symbols
) -> Codes:
    """Convert an Arrow column: at once if its type fits, otherwise value by value."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    codes = None
    if _fits(plain.type, column.type) and not particular(column.type):
        try:
            wanted = arrow_type(column.type)
            codes = _checked(plain if plain.type == wanted else _cast(plain, wanted), column, symbols)
        except pa.ArrowInvalid:
            codes = None
    return _convert_each(plain.to_pylist(), column, first_row, symbols) if codes is None else codes


def _fits(source: pa.DataType, type: SqlType) -> bool:
    """True if Arrow's checked cast gives the result of MySQL's conversion."""
    is_ = pa.types
    if type.kind is Kind.TIME or type.is_listed:
        return False
    if type.kind is Kind.TEXT:
        return bool(is_.is_string(source) or is_.is_large_string(source))
    if type.kind is Kind.DATETIME:
        return bool(is_.is_timestamp(source) or is_.is_date(source))
    if type.kind is Kind.DATE:
        return bool(is_.is_date(source))
    if type.kind is Kind.DECIMAL:
        return bool(is_.is_decimal(source) or is_.is_integer(source))
    return bool(is_.is_integer(source) or is_.is_boolean(source) or
                (type.kind is Kind.DOUBLE and is_.is_floating(source)))


def recode_all(codes: Codes, source: SqlType, column: Column, first_row: int, symbols: Symbols) -> Codes:
    """Recode many rows as `recode` does.  If many values are equal, each distinct value is converted once."""
    values, places = np.unique(codes, return_inverse=True)
    if 2 * len(values) <= len(codes):
        try:
            made: Codes = recode(values, source, column, first_row, symbols)[places]
            return made
        except SqlError:  # raised again below, with its row number
            pass
    return recode(codes, source, column, first_row, symbols)


def _six_digits(code: int) -> int:
    value = float(decode_doubles(np.array([code], np.int64)).item())
    return int(encode_doubles(np.array([float(f"{value:.6g}")])).item())


def recode(codes: Codes, source: SqlType, column: Column, first_row: int, symbols: Symbols) -> Codes:
    """Convert codes of type `source` to codes of a column, with the checks of `convert`."""
    if len(codes) and int(codes.min()) <= ERROR_CODE:
        if bool((codes == ERROR_CODE).any()):
            raise evaluation_error(source)
        if not column.nullable:
            raise null_not_allowed(column.name)
    target = column.type
    if source.is_listed and target.is_number:  # the code, a position or a mask, is the number
        source = BIGINT
    if source.kind is Kind.DOUBLE and source.bits == 32 and target.is_text:  # with the digits of a FLOAT
        codes, source = np.array([c if c == NULL_CODE else _six_digits(c) for c in codes.tolist()], np.int64), DOUBLE
    if source == target and not target.is_number:
        return codes
    plain = not (particular(target) or target.is_listed or source.is_bytes or target.declared == "char")
    if plain and source.kind is target.kind and source.scale == target.scale:
        if target.is_text and (not target.length or 0 < source.length <= target.length):
            return codes
        if not target.is_text:
            real = codes[codes != NULL_CODE]
            if not len(real) or _in_range(real, column):
                return codes
    if len(codes) <= SMALL and source.is_text and not (source.is_bytes or source.is_listed):  # as of `col = 'text'`
        texts = [None if c == NULL_CODE else decode(c, source, symbols) for c in codes.tolist()]
        return convert(texts, column, first_row, symbols)
    return convert(to_arrow(codes, source, symbols), column, first_row, symbols)
