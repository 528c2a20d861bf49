"""Casts of codes from one type to another, and MySQL's reading of numbers and dates in text.

`kernel(source, target)` returns a function over arrays of codes.  NULL stays NULL, and an error stays an error.

* A result that does not fit its type becomes the type's greatest or least value, as in MySQL's CAST.
* It becomes an error if it exceeds a bound that only Noria has (DECIMAL of 18 digits), or is negative and the type is
  UNSIGNED.  A value that is no member of an ENUM or SET becomes an error, too.
* Text that is no date becomes NULL.  Text that is no number becomes the number at its beginning, or 0.
* Rounding is half away from zero, but half to even from a double to an integer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.errors import SqlError
from noria.core.expressions.coerce import (
    LONGEST_TIME,
    MICROSECOND,
    coerce,
    listed_text,
    parse_time,
    show_double,
    show_time,
)
from noria.core.expressions.library import json
from noria.core.expressions.zero_date import ZERO_DATETIME, is_zero_text
from noria.core.limits import ERROR_CODE, MAX_DECIMAL_DIGITS, MAX_INT, MIN_INT, NULL_CODE
from noria.core.symbols import NO_SYMBOLS, Symbols
from noria.core.types import BIGINT, DATETIME, MOMENTS, Column, Kind, SqlType
from noria.core.values import DAY_MICROS, decode, decode_doubles, encode, encode_doubles

Kernel = Callable[[Codes, Symbols], Codes]
_NUMBER = re.compile(r"\s*([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_INTEGER = re.compile(r"\s*([+-]?[0-9]+)")
_MOMENT = Column("", SqlType(Kind.DATETIME, scale=6))
_WIDE = Context(prec=80)
EXACT_DOUBLE = 2**53  # doubles represent integers up to this one exactly


# ------------------------------------------------------------------ reading text
def number_prefix(text: str) -> int | Decimal | float:
    """Return the number at the beginning of a text, or 0: '12abc' is 12, '1e3' is 1000.0."""
    found = _NUMBER.match(text)
    if found is None or not (found[2] or found[3]):
        return 0
    sign, integral, fraction, exponent = found.groups()
    if exponent is not None:
        number = float(f"{sign}{integral or 0}.{fraction or 0}e{exponent}")
        return min(max(number, -sys.float_info.max), sys.float_info.max)
    return Decimal(f"{sign}{integral or 0}.{fraction}") if fraction else int(f"{sign}{integral}")


def integer_prefix(text: str) -> int:
    """Return the integer at the beginning of a text, or 0: CAST('12.7x' AS SIGNED) is 12."""
    found = _INTEGER.match(text)
    return int(found[1]) if found is not None else 0


def parse_moment(value: Any) -> datetime | None:
    """Return the moment that a literal denotes, or None."""
    if is_zero_text(value):
        return ZERO_DATETIME
    try:
        moment = coerce(value, _MOMENT, 1)
    except SqlError:
        return None
    return moment if isinstance(moment, datetime) else None


# ------------------------------------------------------------------ helpers of every kernel
def per_distinct(codes: Codes, f: Callable[[Codes], Codes]) -> Codes:
    """Apply f once to each distinct valid code.  NULL and errors stay."""
    if len(codes) == 1:
        return codes if codes.item() <= ERROR_CODE else f(codes)
    distinct, place = np.unique(codes, return_inverse=True)
    bad = int(np.searchsorted(distinct, ERROR_CODE, "right"))
    if bad < len(distinct):
        distinct = np.concatenate([distinct[:bad], f(distinct[bad:])])
    return distinct[place]


def with_specials(source: Codes, result: Codes) -> Codes:
    """Copy the NULLs and errors of the source to the result."""
    if len(source) and source.item(source.argmin()) <= ERROR_CODE:
        return np.where(source <= ERROR_CODE, source, result)
    return result


def divide_rounded(a: Codes, b: Codes | int) -> Codes:
    """Divide and round half away from zero.  b must not be zero."""
    size, unit = np.abs(a), np.abs(b)
    q = size // unit
    rest = size - q * unit
    q += rest >= unit - rest
    return np.where((a < 0) != (np.asarray(b) < 0), -q, q)


def multiply_checked(a: Codes, b: Codes) -> Codes:
    """Multiply; a product outside int64 is an error.  The result is undefined for NULL and errors."""
    r: Codes = a * b
    risky = np.abs(a.astype(np.float64) * b) >= 2.0**62
    if risky.any():
        for i in np.flatnonzero(risky):
            exact = int(a[i % len(a)]) * int(b[i % len(b)])
            r[i] = exact if MIN_INT <= exact <= MAX_INT else ERROR_CODE
    return r


def rescale(codes: Codes, digits: int) -> Codes:
    """Multiply codes by 10**digits, with rounding if digits is negative.  NULL and errors stay."""
    if digits == 0:
        return codes
    if digits > 0:
        return with_specials(codes, multiply_checked(codes, np.array([10**digits], np.int64)))
    return with_specials(codes, divide_rounded(codes, 10**-digits))


def doubles_of(codes: Codes, scale: int = 0) -> npt.NDArray[np.float64]:
    """Return the doubles nearest to codes / 10**scale."""
    if scale == 0:
        return codes.astype(np.float64)
    unit = 10**scale
    values: npt.NDArray[np.float64] = codes.astype(np.float64) / unit
    for i in np.flatnonzero(np.abs(codes) > EXACT_DOUBLE):
        values[i] = int(codes[i]) / unit
    return values


def doubles_to_codes(values: npt.NDArray[np.float64]) -> Codes:
    """Return the codes of doubles.  Infinity and NaN become errors."""
    finite = np.isfinite(values)
    return np.where(finite, encode_doubles(np.where(finite, values, 0.0)), ERROR_CODE)


# ------------------------------------------------------------------ kernels
def kernel(source: SqlType, target: SqlType) -> Kernel:
    """Return the cast from `source` to `target` as a function over codes."""
    if target.is_listed and source != target:
        return _to_members(source, target)
    if source.is_text and target.is_text:
        return _between_texts(source, target)
    if source.is_text:
        return _from_text(source, target)
    if target.is_text:
        return _to_text(source, target)
    if Kind.TIME in (source.kind, target.kind) or (source.kind in MOMENTS) != (target.kind in MOMENTS):
        return _through_values(source, target)
    if target.kind in MOMENTS:
        return _moments(source, target)
    if source.is_listed:  # its code, a position or a mask, is the number
        source = BIGINT
    if target.kind is Kind.DOUBLE:
        return _to_doubles(source, target)
    if source.kind is Kind.DOUBLE:
        return lambda codes, _: per_distinct(codes, lambda c: _from_doubles(decode_doubles(c), target))
    digits = target.scale - source.scale
    return lambda codes, _: _limited(codes, digits, target)


def _to_doubles(source: SqlType, target: SqlType) -> Kernel:
    single = target.bits == 32 and not (source.kind is Kind.DOUBLE and source.bits == 32)

    def run(codes: Codes, _: Symbols) -> Codes:
        values = decode_doubles(codes) if source.kind is Kind.DOUBLE else doubles_of(codes, source.scale)
        with np.errstate(all="ignore"):
            return with_specials(codes, doubles_to_codes(values.astype(np.float32).astype(np.float64)
                                                         if single else values))

    return (lambda codes, _: codes) if source.kind is Kind.DOUBLE and not single else run


def _through_values(source: SqlType, target: SqlType) -> Kernel:
    """Return the cast between numbers, moments and times, which runs once for each distinct value.

    The number 20200102 is a date, a moment is the number of its digits, and the TIME of a moment is its time of day.
    A value that cannot be converted becomes NULL.
    """
    def one(code: int) -> int:
        value = decode(code, source, NO_SYMBOLS)
        if target.kind is Kind.TIME:
            found = parse_time(value)
            return NULL_CODE if found is None else _to_fraction(found // MICROSECOND, target)
        if target.kind in MOMENTS:
            moment = None if source.kind is Kind.TIME else parse_moment(value)
            return NULL_CODE if moment is None else int(_moments(DATETIME, target)(
                np.array([_moment_code(moment, target)]), NO_SYMBOLS).item())
        number = Decimal(digits(value, source.scale))
        if target.kind is Kind.DOUBLE:
            return int(encode_doubles(np.array([float(number)])).item())
        return _number_code(number, target)

    return lambda codes, _: per_distinct(codes, lambda c: np.array([one(x) for x in c.tolist()], np.int64))


def digits(value: Any, scale: int = 0) -> str:
    """Return the digits of the number that MySQL makes of a date, datetime or time: 20200102030405, 30405."""
    if isinstance(value, timedelta):
        return show_time(value, scale).replace(":", "")
    if isinstance(value, datetime):
        return f"{value:%Y%m%d%H%M%S}" + (f".{value.microsecond:06}"[: scale + 1] if scale else "")
    return f"{value:%Y%m%d}"


def _to_fraction(micros: int, target: SqlType) -> int:
    unit: int = 10 ** (6 - target.scale)
    size = min((abs(micros) + unit // 2) // unit * unit, LONGEST_TIME // MICROSECOND)
    return -size if micros < 0 else size


def _bounds(target: SqlType) -> tuple[int, int]:
    """Return the least and the greatest code of an INT or DECIMAL type."""
    if target.kind is Kind.DECIMAL:
        most = MAX_INT if target.precision >= MAX_DECIMAL_DIGITS else 10**target.precision - 1
        return (0 if target.unsigned else -most + (most == MAX_INT)), most
    if target.unsigned:
        return 0, min(2**target.bits - 1, MAX_INT)
    return max(-(2 ** (target.bits - 1)), MIN_INT), 2 ** (target.bits - 1) - 1


def clips(target: SqlType) -> bool:
    """True if a value that does not fit the type becomes its greatest or least value, not an error."""
    return target.kind is Kind.INT or target.precision < MAX_DECIMAL_DIGITS


def _limited(codes: Codes, digits: int, target: SqlType) -> Codes:
    """Multiply codes by 10**digits, and clip the results to the type or make them errors."""
    low, high = _bounds(target)
    if clips(target) and digits > 0:
        most = high // 10**digits + 1
        codes = np.where(codes > ERROR_CODE, np.clip(codes, -most, most), codes)
    scaled = rescale(codes, digits)
    if low == MIN_INT and high == MAX_INT:
        return scaled
    if clips(target):
        least = low if low < 0 else MIN_INT
        scaled = np.where(scaled > ERROR_CODE, np.clip(scaled, least, high), scaled)
    return np.where(((scaled < low) | (scaled > high)) & (scaled > ERROR_CODE), ERROR_CODE, scaled)


def _own_bounds(target: SqlType) -> tuple[int, int]:
    """Return MySQL's least and greatest value of an INT type, which may be outside the range of codes."""
    return (0, 2**target.bits - 1) if target.unsigned else (-(2 ** (target.bits - 1)), 2 ** (target.bits - 1) - 1)


def _number_code(number: Decimal, target: SqlType, rounding: str = ROUND_HALF_UP) -> int:
    low, high = _bounds(target)
    if number.adjusted() > 40:
        code = 10**40 if number > 0 else -(10**40)
    else:
        code = int(_WIDE.scaleb(number, target.scale).to_integral_value(rounding, _WIDE)) if number else 0
    if low <= code <= high:
        return code
    if target.kind is Kind.INT:
        low, high = _own_bounds(target)
    clipped = high if code > high else low
    held = clips(target) and MIN_INT <= clipped <= MAX_INT and not (code < 0 and low == 0)
    return clipped if held and not low <= code <= high else ERROR_CODE


def _from_doubles(values: npt.NDArray[np.float64], target: SqlType) -> Codes:
    """Round doubles by their shortest decimal digits: 1.005 to two digits is 1.01.  2.5 to an integer is 2."""
    rounding = ROUND_HALF_EVEN if target.kind is Kind.INT else ROUND_HALF_UP
    return np.array([_number_code(Decimal(repr(v)), target, rounding) for v in values.tolist()], np.int64)


def _between_texts(source: SqlType, target: SqlType) -> Kernel:
    """Return the cast between texts: it cuts to a length, converts bytes to characters and back, and parses JSON.

    Bytes that are not UTF-8 become NULL.
    """
    length = target.length
    steps: list[Callable[[str], str | None]] = []
    if source.is_bytes and not target.is_bytes:
        steps.append(_characters)
    if target.is_bytes and not source.is_bytes:
        steps.append(lambda t: t.encode().decode("latin-1"))
    if target.is_json and not source.is_json:
        steps.append(json.normalised)
    if length:
        steps.append(lambda t: t[:length])
    if target.declared == "binary" and length:
        steps.append(lambda t: t.ljust(length, "\0"))
    if not steps:
        return lambda codes, _: codes

    def one(text: str) -> str | SqlError | None:
        out: str | None = text
        try:
            for step in steps:
                out = None if out is None else step(out)
        except SqlError as e:
            return e
        return out

    return lambda codes, symbols: per_distinct(
        codes, lambda c: interned_or_special([one(t) for t in texts(c, symbols)], symbols))


def _characters(data: str) -> str | None:
    try:
        return data.encode("latin-1").decode()
    except UnicodeDecodeError:
        return None


def interned_or_special(values: list[Any], symbols: Symbols) -> Codes:
    """Return the codes of texts.  None becomes NULL, and any other object, such as an exception, an error."""
    out = np.array([NULL_CODE if v is None else ERROR_CODE for v in values], np.int64)
    good = [i for i, v in enumerate(values) if isinstance(v, str)]
    if good:
        out[good] = interned([values[i] for i in good], symbols)
    return out


def _from_text(source: SqlType, target: SqlType) -> Kernel:
    """Return the cast from text, which reads the beginning of a text.  A JSON string is read as its text."""
    read = _reader(target)
    if source.is_json:
        return lambda codes, symbols: per_distinct(
            codes, lambda c: np.array([read(_scalar(t)) for t in texts(c, symbols)], np.int64))
    return lambda codes, symbols: per_distinct(
        codes, lambda c: np.array([read(t) for t in texts(c, symbols)], np.int64))


def _scalar(document: str) -> str:
    return {"true": "1", "false": "0"}.get(document) or json.unquote(document)


def _reader(target: SqlType) -> Callable[[str], int]:
    if target.kind is Kind.TIME:
        def read(text: str) -> int:
            found = parse_time(text)
            return NULL_CODE if found is None else _to_fraction(found // MICROSECOND, target)
    elif target.kind in MOMENTS:
        def read(text: str) -> int:
            moment = parse_moment(text)
            if moment is None:
                return NULL_CODE
            code = np.array([_moment_code(moment, target)])
            return int(_moments(_MOMENT.type, target)(code, NO_SYMBOLS).item())
    elif target.kind is Kind.DOUBLE:
        def read(text: str) -> int:
            number = float(Decimal(number_prefix(text)))  # float() of a very large int would raise
            return int(doubles_to_codes(np.array([number])).item())
    else:
        def read(text: str) -> int:
            number = integer_prefix(text) if target.kind is Kind.INT else number_prefix(text)
            return _number_code(Decimal(repr(number) if isinstance(number, float) else number), target)

    return read


def _moment_code(moment: date, target: SqlType) -> int:
    code = encode(moment, DATETIME, NO_SYMBOLS)
    return code - code % DAY_MICROS if target.kind is Kind.DATE else code


def _moments(source: SqlType, target: SqlType) -> Kernel:
    """Return the cast between DATE and DATETIME.  To DATE it cuts the time off; to fewer digits it rounds half up."""
    if target.kind is Kind.DATE:
        return lambda codes, _: with_specials(codes, codes - codes % DAY_MICROS)
    if source.kind is Kind.DATE or target.scale >= source.scale:
        return lambda codes, _: codes
    unit = 10 ** (6 - target.scale)
    return lambda codes, _: with_specials(codes, (codes + unit // 2) // unit * unit)


def _to_members(source: SqlType, target: SqlType) -> Kernel:
    """Return the cast to ENUM or SET, from text or numbers.  A value that is no member becomes an error."""
    column = Column("", target)

    def one(code: int, symbols: Symbols) -> int:
        try:
            return encode(coerce(decode(code, source, symbols), column, 1), target, symbols)
        except SqlError:
            return ERROR_CODE

    return lambda codes, symbols: per_distinct(
        codes, lambda c: np.array([one(code, symbols) for code in c.tolist()], np.int64))


def _to_text(source: SqlType, target: SqlType) -> Kernel:
    length = target.length

    def write(codes: Codes, symbols: Symbols) -> Codes:
        if source.kind is Kind.INT and not (source.is_listed or source.declared in ("year", "bit") or length):
            return symbols.intern_many(pa.array(codes).cast(pa.large_string()))
        if source.is_listed:
            shown = [listed_text(c, source.kind, source.members) for c in codes.tolist()]
        else:
            shown = [show(decode(c, source, symbols), source) for c in codes.tolist()]
        if target.is_json:
            shown = [s if source.is_number else json.quote(s) for s in shown]
        return interned([s[:length] for s in shown] if length else shown, symbols)

    return lambda codes, symbols: per_distinct(codes, lambda c: write(c, symbols))


def show(value: Any, type: SqlType) -> str:
    """Return the text of a value of the type, as MySQL prints it."""
    if isinstance(value, datetime):
        fraction = f".{value.microsecond:06d}"[: type.scale + 1] if type.scale else ""
        return f"{value.year:04}{value:-%m-%d %H:%M:%S}{fraction}"
    if isinstance(value, float):
        return f"{value:.{type.scale}f}" if type.precision else (
            show_float(value) if type.bits == 32 else show_double(value))
    if isinstance(value, timedelta):
        return show_time(value, type.scale)
    if type.declared == "year":
        return f"{value:04}"
    if type.is_bit:
        return bits_of(value, type).decode("latin-1")
    return f"{value:f}" + "0" * type.length if isinstance(value, Decimal) else str(value)


def bits_of(value: int, type: SqlType) -> bytes:
    """Return the bytes of a BIT."""
    return value.to_bytes((type.precision + 7) // 8, "big")


def show_float(value: float) -> str:
    """Return the text of a FLOAT: six digits."""
    return show_double(float(f"{value:.6g}"))


def texts(codes: Codes, symbols: Symbols) -> list[str]:
    """Return the texts of codes that are neither NULL nor errors."""
    if len(codes) == 1:
        return [symbols.text(codes.item())]
    found: list[str] = symbols.texts(codes).to_pylist()
    return found


def interned(values: list[str], symbols: Symbols) -> Codes:
    if len(values) == 1:
        return np.array([symbols.intern(values[0])], np.int64)
    return symbols.intern_many(pa.array(values, pa.large_string()))
