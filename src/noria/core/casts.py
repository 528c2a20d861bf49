"""Casts of codes from one type to another, and how MySQL reads numbers and dates in text.

`kernel(from, to)` gives a function over arrays of codes.  NULL stays NULL and an error an error; a result that
does not fit its type is an error; text that is no date is NULL, text that is no number counts as the number
it begins with, else 0.  Rounding is half away from zero.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.coerce import coerce
from noria.core.errors import SqlError
from noria.core.limits import ERROR_CODE, MAX_DECIMAL_DIGITS, MAX_INT, MIN_INT, NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import DATETIME, Column, Kind, SqlType
from noria.core.values import DAY_MICROS, decode, decode_doubles, encode, encode_doubles

Kernel = Callable[[Codes, Symbols], Codes]
_NUMBER = re.compile(r"\s*([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_INTEGER = re.compile(r"\s*([+-]?[0-9]+)")
_MOMENT = Column("", SqlType(Kind.DATETIME, scale=6))
_WIDE = Context(prec=80)
EXACT_DOUBLE = 2**53  # integers up to here are doubles exactly


# ------------------------------------------------------------------ reading text
def number_prefix(text: str) -> int | Decimal | float:
    """The number a text begins with, 0 if it begins with none: '12abc' is 12, '1e3' is 1000.0."""
    found = _NUMBER.match(text)
    if found is None or not (found[2] or found[3]):
        return 0
    sign, whole, fraction, exponent = found.groups()
    if exponent is not None:
        number = float(f"{sign}{whole or 0}.{fraction or 0}e{exponent}")
        return min(max(number, -sys.float_info.max), sys.float_info.max)
    return Decimal(f"{sign}{whole or 0}.{fraction}") if fraction else int(f"{sign}{whole}")


def integer_prefix(text: str) -> int:
    """The integer a text begins with: CAST('12.7x' AS SIGNED) is 12."""
    found = _INTEGER.match(text)
    return int(found[1]) if found is not None else 0


def parse_moment(value: Any) -> datetime | None:
    """The moment a literal means, None if it means none."""
    try:
        moment = coerce(value, _MOMENT, 1)
    except SqlError:
        return None
    return moment if isinstance(moment, datetime) else None


# ------------------------------------------------------------------ helpers of every kernel
def per_distinct(codes: Codes, f: Callable[[Codes], Codes]) -> Codes:
    """f over the distinct valid codes, spread over all; NULL and errors stay."""
    if len(codes) == 1:
        return codes if codes.item() <= ERROR_CODE else f(codes)
    distinct, place = np.unique(codes, return_inverse=True)
    bad = int(np.searchsorted(distinct, ERROR_CODE, "right"))
    if bad < len(distinct):
        distinct = np.concatenate([distinct[:bad], f(distinct[bad:])])
    return distinct[place]


def with_specials(source: Codes, result: Codes) -> Codes:
    """The result, with NULL and errors where the source has them."""
    if len(source) and source.item(source.argmin()) <= ERROR_CODE:
        return np.where(source <= ERROR_CODE, source, result)
    return result


def divide_rounded(a: Codes, b: Codes | int) -> Codes:
    """a / b rounded half away from zero; b is not zero."""
    size, unit = np.abs(a), np.abs(b)
    q = size // unit
    rest = size - q * unit
    q += rest >= unit - rest
    return np.where((a < 0) != (np.asarray(b) < 0), -q, q)


def multiply_checked(a: Codes, b: Codes) -> Codes:
    """a * b, an error where it leaves int64.  Specials in the inputs give anything."""
    r: Codes = a * b
    risky = np.abs(a.astype(np.float64) * b) >= 2.0**62
    if risky.any():
        for i in np.flatnonzero(risky):
            exact = int(a[i % len(a)]) * int(b[i % len(b)])
            r[i] = exact if MIN_INT <= exact <= MAX_INT else ERROR_CODE
    return r


def rescale(codes: Codes, digits: int) -> Codes:
    """codes * 10**digits; NULL and errors stay."""
    if digits == 0:
        return codes
    if digits > 0:
        return with_specials(codes, multiply_checked(codes, np.array([10**digits], np.int64)))
    return with_specials(codes, divide_rounded(codes, 10**-digits))


def doubles_of(codes: Codes, scale: int = 0) -> npt.NDArray[np.float64]:
    """Integers over 10**scale as the nearest doubles."""
    if scale == 0:
        return codes.astype(np.float64)
    unit = 10**scale
    values: npt.NDArray[np.float64] = codes.astype(np.float64) / unit
    for i in np.flatnonzero(np.abs(codes) > EXACT_DOUBLE):
        values[i] = int(codes[i]) / unit
    return values


def doubles_to_codes(values: npt.NDArray[np.float64]) -> Codes:
    """Codes of doubles; infinite ones and NaN are errors."""
    finite = np.isfinite(values)
    return np.where(finite, encode_doubles(np.where(finite, values, 0.0)), ERROR_CODE)


# ------------------------------------------------------------------ kernels
def kernel(source: SqlType, target: SqlType) -> Kernel:
    """The cast as a function over codes."""
    if source.is_text and target.is_text:
        return _cut(target.length)
    if source.is_text:
        return _from_text(target)
    if target.is_text:
        return _to_text(source, target.length)
    if target.kind in (Kind.DATE, Kind.DATETIME):
        return _moments(source, target)
    if target.kind is Kind.DOUBLE:
        return lambda codes, _: codes if source.kind is Kind.DOUBLE else with_specials(
            codes, encode_doubles(doubles_of(codes, source.scale)))
    low, high = _bounds(target)
    if source.kind is Kind.DOUBLE:
        return lambda codes, _: per_distinct(codes, lambda c: _from_doubles(decode_doubles(c), target.scale, low, high))
    digits = target.scale - source.scale
    return lambda codes, _: _limited(rescale(codes, digits), low, high)


def _bounds(target: SqlType) -> tuple[int, int]:
    """The codes an INT or DECIMAL may have."""
    if target.kind is Kind.DECIMAL:
        most = MAX_INT if target.precision >= MAX_DECIMAL_DIGITS else 10**target.precision - 1
        return (0 if target.unsigned else -most + (most == MAX_INT)), most
    if target.unsigned:
        return 0, min(2**target.bits - 1, MAX_INT)
    return max(-(2 ** (target.bits - 1)), MIN_INT), 2 ** (target.bits - 1) - 1


def _limited(codes: Codes, low: int, high: int) -> Codes:
    if low == MIN_INT and high == MAX_INT:
        return codes
    return np.where(((codes < low) | (codes > high)) & (codes > ERROR_CODE), ERROR_CODE, codes)


def _whole(number: Decimal, scale: int, low: int, high: int) -> int:
    if number.adjusted() > 40:
        return ERROR_CODE
    code = int(_WIDE.scaleb(number, scale).to_integral_value(ROUND_HALF_UP, _WIDE)) if number else 0
    return code if low <= code <= high else ERROR_CODE


def _from_doubles(values: npt.NDArray[np.float64], scale: int, low: int, high: int) -> Codes:
    """Each double by its shortest decimal digits: 1.005 to two digits is 1.01."""
    return np.array([_whole(Decimal(repr(v)), scale, low, high) for v in values.tolist()], np.int64)


def _cut(length: int) -> Kernel:
    def cut(codes: Codes, symbols: Symbols) -> Codes:
        return per_distinct(codes, lambda c: interned([t[:length] for t in texts(c, symbols)], symbols))

    return cut if length else lambda codes, _: codes


def _from_text(target: SqlType) -> Kernel:
    if target.kind in (Kind.DATE, Kind.DATETIME):
        def read(text: str) -> int:
            moment = parse_moment(text)
            return NULL_CODE if moment is None else _moment_code(moment, target)
    elif target.kind is Kind.DOUBLE:
        def read(text: str) -> int:
            return int(doubles_to_codes(np.array([float(number_prefix(text))])).item())
    else:
        low, high = _bounds(target)

        def read(text: str) -> int:
            number = integer_prefix(text) if target.kind is Kind.INT else number_prefix(text)
            return _whole(Decimal(repr(number) if isinstance(number, float) else number), target.scale, low, high)

    return lambda codes, symbols: per_distinct(
        codes, lambda c: np.array([read(t) for t in texts(c, symbols)], np.int64))


def _moment_code(moment: date, target: SqlType) -> int:
    code = encode(moment, DATETIME, _NO_SYMBOLS)
    return code - code % DAY_MICROS if target.kind is Kind.DATE else code


def _moments(source: SqlType, target: SqlType) -> Kernel:
    """DATE to DATETIME changes no code; to DATE cuts the time off; fewer fraction digits round half up."""
    if target.kind is Kind.DATE:
        return lambda codes, _: with_specials(codes, codes - codes % DAY_MICROS)
    if source.kind is Kind.DATE or target.scale >= source.scale:
        return lambda codes, _: codes
    unit = 10 ** (6 - target.scale)
    return lambda codes, _: with_specials(codes, (codes + unit // 2) // unit * unit)


def _to_text(source: SqlType, length: int) -> Kernel:
    def write(codes: Codes, symbols: Symbols) -> Codes:
        shown = [show(decode(c, source, symbols), source) for c in codes.tolist()]
        return interned([s[:length] for s in shown] if length else shown, symbols)

    return lambda codes, symbols: per_distinct(codes, lambda c: write(c, symbols))


def show(value: Any, type: SqlType) -> str:
    """The text of a value as MySQL prints one of the type."""
    if isinstance(value, datetime):
        fraction = f".{value.microsecond:06d}"[: type.scale + 1] if type.scale else ""
        return f"{value:%Y-%m-%d %H:%M:%S}{fraction}"
    if isinstance(value, float):
        return _show_double(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _show_double(value: float) -> str:
    """Shortest digits, as MySQL has them: 3, 0.1, 1e15, 1.5e-7."""
    digits, _, exponent = f"{Decimal(repr(value)):e}".lower().partition("e")
    size = int(exponent or 0)
    if -15 <= size < 15:
        shown = f"{Decimal(repr(value)):f}"
        return shown.rstrip("0").rstrip(".") if "." in shown else shown
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}e{size}"


def texts(codes: Codes, symbols: Symbols) -> list[str]:
    """The texts of valid codes."""
    if len(codes) == 1:
        return [symbols.text(codes.item())]
    found: list[str] = symbols.texts(codes).to_pylist()
    return found


def interned(values: list[str], symbols: Symbols) -> Codes:
    if len(values) == 1:
        return np.array([symbols.intern(values[0])], np.int64)
    return symbols.intern_many(pa.array(values, pa.large_string()))


_NO_SYMBOLS: Any = None  # moments have no text
