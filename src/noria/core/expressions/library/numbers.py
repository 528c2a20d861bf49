"""Functions of numbers: roots and powers, logarithms, angles, bits, other bases.

Arithmetic operators are in `functions/numbers.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.limits import ERROR_CODE
from noria.core.types import BIGINT, DOUBLE, TEXT, UBIGINT

Doubles = npt.NDArray[np.float64]
REMEMBERED = "last_insert_id"
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _double(f: Callable[..., Any], arguments: int = 1, nullable: bool = True) -> Function:
    return Function((ArgumentType.DOUBLE,) * arguments, DOUBLE, codes=f, nullable=nullable)


def _log(base: Doubles, x: Doubles) -> Doubles:
    """Return the logarithm; NULL for a base of 1, and if the base or the number is not positive."""
    lowered: Doubles = np.log(base)
    return np.where((base <= 0) | (base == 1) | (x <= 0), np.nan, np.log(x) / lowered)


def _ln(x: Doubles) -> Doubles:
    return np.where(x <= 0, np.nan, np.log(x))


def _pow(x: Doubles, y: Doubles) -> Doubles:
    """Return the power.  A root of a negative number is an error, like 0 to a negative power."""
    result = np.power(x, y)
    return np.where(np.isnan(result), np.inf, result)


def _cot(x: Doubles) -> Doubles:
    return 1 / np.tan(x)


# ------------------------------------------------------------------ bits
def _positive(codes: Codes) -> Codes:
    """Make a BIGINT UNSIGNED beyond 2**63 - 1 an error: no code can hold it."""
    return np.where(codes < 0, ERROR_CODE, codes)


def _signed(codes: Codes) -> Codes:
    """Make the two least BIGINTs errors: no code can hold them."""
    return np.where(codes <= ERROR_CODE, ERROR_CODE, codes)


def _shifted_left(x: Codes, by: Codes) -> Codes:
    return np.where((by > 63) | (by < 0), 0, x << np.clip(by, 0, 63))


def _left(x: Codes, by: Codes) -> Codes:
    small = np.clip(by, 0, 63)
    shifted = x << small
    lost = ((shifted >> small) != x) | (shifted < 0)
    result = np.where((by > 63) | (by < 0), 0, np.where(lost, ERROR_CODE, shifted))
    return np.where(x == 0, 0, result)


def _right(x: Codes, by: Codes) -> Codes:
    return _positive(_shifted_right(x, by))


def _shifted_right(x: Codes, by: Codes) -> Codes:
    unsigned = (x.view(np.uint64) >> np.clip(by, 0, 63).astype(np.uint64)).view(np.int64)
    return np.where((by > 63) | (by < 0), 0, unsigned)


def _bit_count(x: int) -> int:
    return (x & (2**64 - 1)).bit_count()


# ------------------------------------------------------------------ text of numbers
def conv(number: Any, source: int, target: int) -> str | None:
    """Convert a number from one base to another.  Return None if a base is not from 2 to 36, with either sign."""
    if not (2 <= abs(source) <= 36 and 2 <= abs(target) <= 36):
        return None
    text = str(number).strip().upper()
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    value = 0
    for c in text:
        digit = DIGITS.find(c)
        if not 0 <= digit < abs(source):
            break
        value = value * abs(source) + digit
    value = min(value, 2**64 - 1) * sign
    if target > 0:
        return in_base(value & (2**64 - 1), target)
    value = (value & (2**64 - 1)) - (2**64 if value & 2**63 else 0)
    return ("-" if value < 0 else "") + in_base(abs(value), -target)


def in_base(value: int, base: int) -> str:
    out = ""
    while value:
        value, digit = divmod(value, base)
        out = DIGITS[digit] + out
    return out or "0"


def hexadecimal(value: Any) -> str:
    """Return the hexadecimal digits of a number, or of the bytes of a text.  A negative number is taken as 64 bits."""
    if isinstance(value, bytes):
        return value.hex().upper()
    if not isinstance(value, (int, float, Decimal)):
        return str(value).encode().hex().upper()
    integer = int(Decimal(repr(value) if isinstance(value, float) else value).to_integral_value("ROUND_HALF_UP"))
    if not -(2**63) <= integer < 2**64:
        integer = 2**64 - 1
    return f"{integer & (2**64 - 1):X}"


def formatted(value: Decimal | int | float, digits: int) -> str:
    """Return a number with separators of thousands: 1234567.891 to two digits is '1,234,567.89'."""
    digits = min(max(digits, 0), 30)
    number = Decimal(repr(value) if isinstance(value, float) else value)
    return f"{number.quantize(Decimal(1).scaleb(-digits), 'ROUND_HALF_UP'):,f}"


def _sign(x: Any) -> int:
    return int(x > 0) - int(x < 0)


def inet_aton(text: str) -> int | None:
    """Return the number of an IPv4 address, or None.  Short forms are read as in MySQL: '127.1' is 127.0.0.1."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 4 or any(not p.isdigit() or int(p) > 255 for p in parts):
        return None
    numbers = [int(p) for p in parts]
    numbers = [*numbers[:-1], *[0] * (4 - len(numbers)), numbers[-1]]
    return sum(n << 8 * (3 - i) for i, n in enumerate(numbers))


def inet_ntoa(number: int) -> str | None:
    return ".".join(str(number >> s & 255) for s in (24, 16, 8, 0)) if 0 <= number < 2**32 else None


def interval_place(number: Any, *limits: Any) -> int:
    """Return how many of the ascending limits are at most the number; -1 for NULL."""
    if number is None:
        return -1
    return next((i for i, limit in enumerate(limits) if limit is not None and limit > number), len(limits))


N, W, T = ArgumentType.NUMBER, ArgumentType.INT, ArgumentType.TEXT
NUMBERS: dict[str, Function] = {
    "sqrt": _double(lambda x: np.where(x < 0, np.nan, np.sqrt(x))),
    "exp": _double(np.exp, nullable=False),
    "ln": _double(_ln), "log": _double(_log, 2),
    "log2": _double(lambda x: np.where(x <= 0, np.nan, np.log2(x))),
    "log10": _double(lambda x: np.where(x <= 0, np.nan, np.log10(x))),
    "pow": _double(_pow, 2, nullable=False),
    **{f.__name__: _double(f, nullable=False) for f in (np.sin, np.cos, np.tan, np.radians, np.degrees)},
    "asin": _double(np.arcsin), "acos": _double(np.arccos), "atan": _double(np.arctan, nullable=False),
    "atan2": _double(np.arctan2, 2, nullable=False), "cot": _double(_cot, nullable=False),
    "sign": Function((N,), BIGINT, values=_sign),
    "bit_and": Function((W, W), UBIGINT, codes=lambda x, y: _positive(x & y), internal=True),
    "bit_clear": Function((W, W), UBIGINT, codes=lambda x, y: _positive(x & ~y), internal=True),
    "bit_or": Function((W, W), UBIGINT, codes=lambda x, y: _positive(x | y), internal=True),
    "bit_xor": Function((W, W), UBIGINT, codes=lambda x, y: _positive(x ^ y), internal=True),
    "bit_not": Function((W,), UBIGINT, codes=lambda x: _positive(~x), internal=True),
    "shift_left": Function((W, W), UBIGINT, codes=_left, internal=True),
    "shift_right": Function((W, W), UBIGINT, codes=_right, internal=True),
    "interval_place": Function((N, N), BIGINT, values=interval_place, more=True, sees_null=True, internal=True),
    **{f"signed_{name}": Function((W,) * count, BIGINT, codes=codes, internal=True) for name, count, codes in (
        ("bit_and", 2, lambda x, y: _signed(x & y)), ("bit_or", 2, lambda x, y: _signed(x | y)),
        ("bit_xor", 2, lambda x, y: _signed(x ^ y)), ("bit_not", 1, lambda x: _signed(~x)),
        ("shift_left", 2, lambda x, y: _signed(_shifted_left(x, y))),
        ("shift_right", 2, lambda x, y: _signed(_shifted_right(x, y))))},
    "bit_count": Function((W,), BIGINT, values=_bit_count),
    "conv": Function((T, W, W), TEXT, values=conv, nullable=True),
    "bin": Function((T,), TEXT, values=lambda x: conv(x, 10, 2)),
    "oct": Function((T,), TEXT, values=lambda x: conv(x, 10, 8)),
    "hex": Function((ArgumentType.ANY,), TEXT, values=hexadecimal),
    "format": Function((N, W), TEXT, values=formatted),
    REMEMBERED: Function((W,), BIGINT, codes=lambda x: x, internal=True),  # LAST_INSERT_ID(x): `remembered` has more
    "crc32": Function((ArgumentType.BYTES,), BIGINT, values=zlib.crc32),
    "inet_aton": Function((T,), BIGINT, values=inet_aton, nullable=True),
    "inet_ntoa": Function((W,), TEXT, values=inet_ntoa, nullable=True),
}
