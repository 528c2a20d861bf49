"""Arithmetic over codes: `NUMBERS[op](call, argument nodes)` returns the node of a call (see `evaluate.py`).

A NULL argument makes the result NULL, and an error makes it an error.  A result outside int64, or a double that is not
finite, is an error.  Division by zero is NULL.  Rounding is half away from zero; doubles are rounded half to even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.expressions import casts
from noria.core.expressions.expr import Call, Const
from noria.core.limits import ERROR_CODE, MIN_INT, NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Kind
from noria.core.values import decode_doubles, encode_double

Mask = npt.NDArray[np.bool_]
Node = Callable[[Codes, Symbols], Codes]
_ERROR, _NULL, _ZERO = (np.array([c], np.int64) for c in (ERROR_CODE, NULL_CODE, 0))
_DOUBLE_ZERO, _DOUBLE_ONE = encode_double(0.0), encode_double(1.0)
Ufunc = Callable[[Codes, Codes], Codes]
MOST_POWER = 18  # the greatest power of ten that a code can hold
MOST_EXPONENT = 308  # the greatest power of ten that a double can hold


def _strict(nodes: list[Node], compute: Ufunc) -> Node:
    """Return the node of a function of two arguments whose result is NULL or an error if an argument is."""
    left, right = nodes

    def run(columns: Codes, symbols: Symbols) -> Codes:
        x, y = left(columns, symbols), right(columns, symbols)
        out = compute(x, y)
        if x.item(x.argmin()) <= ERROR_CODE or y.item(y.argmin()) <= ERROR_CODE:
            bad = np.minimum(x, y) <= _ERROR
            error = (x == _ERROR) | (y == _ERROR)
            return np.where(bad, np.where(error, _ERROR, _NULL), out)
        return out

    return run


def _on_doubles(f: Callable[[Any, Any], Any]) -> Ufunc:
    def compute(x: Codes, y: Codes) -> Codes:
        with np.errstate(all="ignore"):
            return casts.doubles_to_codes(f(decode_doubles(x), decode_doubles(y)))

    return compute


def _fits(r: Codes, overflow: Mask) -> Codes:
    """Make results errors that overflowed or equal the code of NULL or of an error."""
    bad = overflow | (r <= _ERROR)
    return np.where(bad, _ERROR, r) if bad.item(bad.argmax()) else r


def _add(e: Call, nodes: list[Node]) -> Node:
    if e.type.kind is Kind.DOUBLE:
        return _strict(nodes, _on_doubles(np.add))

    def compute(x: Codes, y: Codes) -> Codes:
        r = x + y
        return _fits(r, ((x ^ r) & (y ^ r)) < 0)

    return _unsigned(e, _strict(nodes, compute))


def _sub(e: Call, nodes: list[Node]) -> Node:
    if e.type.kind is Kind.DOUBLE:
        return _strict(nodes, _on_doubles(np.subtract))

    def compute(x: Codes, y: Codes) -> Codes:
        r = x - y
        return _fits(r, ((x ^ y) & (x ^ r)) < 0)

    return _unsigned(e, _strict(nodes, compute))


def _mul(e: Call, nodes: list[Node]) -> Node:
    if e.type.kind is Kind.DOUBLE:
        return _strict(nodes, _on_doubles(np.multiply))
    return _unsigned(e, _strict(nodes, casts.multiply_checked))


def _unsigned(e: Call, node: Node) -> Node:
    """Make negative results errors if the type is UNSIGNED."""
    if not e.type.unsigned:
        return node

    def run(columns: Codes, symbols: Symbols) -> Codes:
        codes = node(columns, symbols)
        return np.where((codes < 0) & (codes > _ERROR), _ERROR, codes)

    return run


def _zero_is_null(divide: Ufunc) -> Ufunc:
    def compute(x: Codes, y: Codes) -> Codes:
        zero = y == _ZERO
        if zero.item(zero.argmax()):
            return np.where(zero, _NULL, divide(x, np.where(zero, 1, y)))
        return divide(x, y)

    return compute


def _div(e: Call, nodes: list[Node]) -> Node:
    if e.type.kind is Kind.DOUBLE:
        divided = _on_doubles(lambda x, y: x / y)
        return _strict(nodes, lambda x, y: np.where(
            y == _DOUBLE_ZERO, _NULL, divided(x, np.where(y == _DOUBLE_ZERO, _DOUBLE_ONE, y))))
    up = 10 ** (e.type.scale - e.args[0].type.scale + e.args[1].type.scale)

    def divide(x: Codes, y: Codes) -> Codes:
        if int(np.abs(x).max()) < (2**62) // up:
            return casts.divide_rounded(x * up, y)
        x, y = np.broadcast_arrays(x, y)
        return np.array([_divide_exactly(a * up, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], np.int64)

    return _strict(nodes, _zero_is_null(divide))


def _divide_exactly(a: int, b: int) -> int:
    q, rest = divmod(abs(a), abs(b))
    q += 2 * rest >= abs(b)
    q = -q if (a < 0) != (b < 0) else q
    return q if MIN_INT <= q <= 2**63 - 1 else ERROR_CODE


def _intdiv(e: Call, nodes: list[Node]) -> Node:
    if e.args[0].type.kind is Kind.DOUBLE:
        to_integer = casts.kernel(e.args[0].type, e.type)
        quotient = _div(Call(e.args[0].type, True, "div", e.args), nodes)
        truncated = _on_double(lambda v: np.where(np.abs(v) < 2.0**63, np.trunc(v), np.inf))  # infinity is an error
        return lambda columns, symbols: to_integer(truncated(quotient(columns, symbols)), symbols)
    return _unsigned(e, _strict(nodes, _zero_is_null(lambda x, y: np.where(
        (x < 0) != (y < 0), -(np.abs(x) // np.abs(y)), np.abs(x) // np.abs(y)))))


def _mod(e: Call, nodes: list[Node]) -> Node:
    if e.type.kind is Kind.DOUBLE:
        rest = _on_doubles(np.fmod)
        return _strict(nodes, lambda x, y: np.where(y == _DOUBLE_ZERO, _NULL, rest(x, y)))
    return _strict(nodes, _zero_is_null(np.fmod))


def _on_double(f: Callable[[Any], Any]) -> Callable[[Codes], Codes]:
    def compute(x: Codes) -> Codes:
        with np.errstate(all="ignore"):
            return casts.with_specials(x, casts.doubles_to_codes(f(decode_doubles(x))))

    return compute


def _unary(e: Call, nodes: list[Node], exact: Callable[[Codes], Codes], double: Callable[[Any], Any]) -> Node:
    node = nodes[0]
    if e.args[0].type.kind is Kind.DOUBLE:
        on_double = _on_double(double)
        return lambda columns, symbols: on_double(node(columns, symbols))

    def run(columns: Codes, symbols: Symbols) -> Codes:
        codes = node(columns, symbols)
        return casts.with_specials(codes, exact(codes))

    return run


def _digits(e: Call) -> int:
    return e.args[1].value if isinstance(e.args[1], Const) else 0


def _round(e: Call, nodes: list[Node]) -> Node:
    digits, type = _digits(e), e.args[0].type
    if type.kind is Kind.DOUBLE:
        return _unary(e, nodes, np.abs, _on_digits(np.rint, digits))
    if digits < 0:
        return _unary(e, nodes, lambda codes: _round_before_point(codes, type.scale - digits, -digits), np.rint)
    node, down = nodes[0], max(type.scale - digits, 0)
    return lambda columns, symbols: casts.rescale(node(columns, symbols), -down)


def _round_before_point(codes: Codes, cut: int, zeros: int) -> Codes:
    """Round away the last `cut` digits of codes, and append `zeros` zeros.  A code has at most 19 digits."""
    if cut <= MOST_POWER:
        rounded = casts.divide_rounded(codes, 10**cut)
    else:
        up = (np.abs(codes) >= 5 * 10**MOST_POWER) & (cut == MOST_POWER + 1)
        rounded = np.where(up, np.sign(codes), 0)
    if zeros <= MOST_POWER:
        return casts.multiply_checked(rounded, np.array([10**zeros], np.int64))
    return np.where(rounded == 0, 0, ERROR_CODE)


def _truncate(e: Call, nodes: list[Node]) -> Node:
    """Round towards zero, to a number of digits after the point or, if it is negative, before it."""
    digits, type = _digits(e), e.args[0].type
    if type.kind is Kind.DOUBLE:
        return _unary(e, nodes, np.abs, _on_digits(np.trunc, digits))
    places = max(type.scale - digits, 0)
    if places > MOST_POWER:
        return _unary(e, nodes, np.zeros_like, np.trunc)
    cut = 10**places
    back_to = cut // 10 ** max(type.scale - e.type.scale, 0)
    return _unary(e, nodes, lambda codes: np.sign(codes) * (np.abs(codes) // cut) * back_to, np.trunc)


def _on_digits(rounded: Callable[[Any], Any], digits: int) -> Callable[[Any], Any]:
    """Return a function that rounds doubles to `digits` after the point or, if it is negative, before it."""
    if abs(digits) > MOST_EXPONENT:
        return lambda v: v * float(digits > 0)
    unit = np.float64(10.0) ** abs(digits)
    if digits >= 0:
        return lambda v: _known_finite(rounded(v * unit) / unit, v)
    return lambda v: _known_finite(rounded(v / unit) * unit, v)


def _known_finite(rounded: Any, original: Any) -> Any:
    """Keep the doubles that are too large to be scaled: they have no digits to round."""
    return np.where(np.isfinite(rounded), rounded, original)


def _floor(e: Call, nodes: list[Node]) -> Node:
    unit = 10 ** e.args[0].type.scale
    return _unary(e, nodes, lambda codes: codes // unit, np.floor)


def _ceil(e: Call, nodes: list[Node]) -> Node:
    unit = 10 ** e.args[0].type.scale
    return _unary(e, nodes, lambda codes: -(-codes // unit), np.ceil)


NUMBERS: dict[str, Callable[[Call, list[Node]], Node]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "intdiv": _intdiv, "mod": _mod,
    "neg": lambda e, nodes: _unary(e, nodes, np.negative, np.negative),
    "abs": lambda e, nodes: _unary(e, nodes, np.abs, np.abs),
    "round": _round, "truncate": _truncate, "floor": _floor, "ceil": _ceil,
}
