"""Arithmetic over quotients with all the digits that MySQL keeps until an expression's value is used.

A quotient's type has four more digits than its dividend, but inside an expression it has at least nine: 1 / 3 is
0.3333, and 1 / 3 * 100 is 33.3333.  `Call.unrounded` tells which calls have such values.  A value is rounded to the
digits of its type where it leaves the expression: as a result, a column, a group or a text.

Keeps true: a value is an integer of units of 10**-scale, and the scale is known when the tree is compiled.  Values are
int64 while all of the batch fit, and Python integers otherwise, so that nothing inside an expression overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from noria.core.batch import Codes
from noria.core.expressions import casts
from noria.core.expressions.expr import Call, Const, Expr, is_unrounded
from noria.core.limits import ERROR_CODE, MAX_DECIMAL_DIGITS, MAX_INT, MIN_INT, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import Symbols
from noria.core.types import BIGINT, DOUBLE, Kind, decimal

Node = Callable[[Codes, Symbols], Codes]
Units = Any  # an array of int64, or of Python integers
WORD = 9  # digits: MySQL stores decimals in words of so many, and a quotient fills its last word
INCREMENT = 4  # digits that a quotient has beyond those of its arguments, at least
EXACT_POWER = 22  # the greatest power of ten that a double represents exactly
MOST_DIGITS = 63  # after the point: as many as MySQL's seven words
_ERROR, _NULL, _ZERO = (np.array([c], np.int64) for c in (ERROR_CODE, NULL_CODE, 0))
_READERS = frozenset({"add", "sub", "mul", "div", "intdiv", "mod", "neg", "abs", "round", "truncate", "floor", "ceil",
                      "cast"})


class Exact(NamedTuple):
    """Values of a batch.  special: NULL_CODE or ERROR_CODE where there is no value, and 0 elsewhere; None: nowhere."""

    units: Units
    special: Codes | None


class Operand(NamedTuple):
    scale: int
    run: Callable[[Codes, Symbols], Exact]


class Compiler(NamedTuple):
    """How the other parts of an expression are compiled: `evaluate.value_node` and `evaluate.mask_node`."""

    value: Callable[[Expr], Node]
    mask: Callable[[Expr, bool], Callable[[Codes, Symbols], Any]]


def reads_unrounded(e: Call) -> bool:
    """Whether the call's value depends on digits of an argument that the argument's type does not have."""
    return e.op == "total" or (e.op in _READERS and e.type.is_number and any(map(is_unrounded, e.args)))


def node(e: Call, compiler: Compiler) -> Node:
    """Compile such a call to the codes of its type."""
    if e.op == "cast":
        return _cast(e, compiler)
    if e.op in _ROUNDINGS:
        return _rounding(e, compiler)
    if e.op == "intdiv":
        return _whole_quotient(e, compiler)
    found, scale = _operand(e, compiler), e.type.scale
    return lambda columns, symbols: _codes(_rescaled(found.run(columns, symbols), scale - found.scale))


def sides(a: Expr, b: Expr, compiler: Compiler) -> tuple[Node, Node]:
    """Compile two numbers to codes that compare as the values do: the sign of their difference, and 0."""
    aligned = _at_finer_scale(_operand(a, compiler), _operand(b, compiler))

    def left(columns: Codes, symbols: Symbols) -> Codes:
        x, y = aligned(columns, symbols)
        return _with_specials(((x.units > y.units).astype(np.int64) - (x.units < y.units)), x.special)

    def right(columns: Codes, symbols: Symbols) -> Codes:
        y = aligned(columns, symbols)[1]
        return _with_specials(np.zeros(len(y.units), np.int64), y.special)

    return left, right


def specials(e: Expr, compiler: Compiler) -> Node:
    """Compile a number to the codes of NULL and errors, and 0 for each value, also for one that no code can hold."""
    found = _operand(e, compiler)

    def run(columns: Codes, symbols: Symbols) -> Codes:
        special = found.run(columns, symbols).special
        return _ZERO if special is None else special

    return run


def is_rounded(e: Call, compiler: Compiler) -> bool:
    """Whether the value of a tree of constants has no more digits than its type."""
    found = _operand(e, compiler)
    value = found.run(np.empty((0, 1), np.int64), PlainSymbols())
    return value.special is not None or int(value.units[0]) % 10 ** max(found.scale - e.type.scale, 0) == 0


# ------------------------------------------------------------------ operands
def scale_of(e: Expr) -> int:
    """Return how many digits after the point the expression's value has inside an expression."""
    return _operand(e, Compiler(lambda _: _nothing, lambda _, __: _nothing)).scale


def _nothing(columns: Codes, symbols: Symbols) -> Codes:
    return _ZERO


def _operand(e: Expr, compiler: Compiler) -> Operand:
    if isinstance(e, Call) and e.unrounded:
        return _OPERANDS[e.op](e, compiler)
    found, scale = compiler.value(e), e.type.scale if e.type.kind is Kind.DECIMAL else 0

    def run(columns: Codes, symbols: Symbols) -> Exact:
        codes = found(columns, symbols)
        if codes.item(codes.argmin()) > ERROR_CODE:
            return Exact(codes, None)
        special = np.where(codes <= _ERROR, codes, 0)
        return Exact(np.where(codes <= _ERROR, 0, codes), special)

    return Operand(scale, run)


def _same_scale(e: Call, compiler: Compiler, compute: Callable[[Units, Units], Units]) -> Operand:
    a, b = (_operand(x, compiler) for x in e.args[:2])
    aligned = _at_finer_scale(a, b)

    def run(columns: Codes, symbols: Symbols) -> Exact:
        x, y = aligned(columns, symbols)
        return Exact(compute(x.units, y.units), _either(x.special, y.special))

    return Operand(max(a.scale, b.scale), run)


def _at_finer_scale(a: Operand, b: Operand) -> Callable[[Codes, Symbols], tuple[Exact, Exact]]:
    """Return a function that computes both operands in units of the finer one."""
    scale = max(a.scale, b.scale)
    return lambda columns, symbols: (_rescaled(a.run(columns, symbols), scale - a.scale),
                                     _rescaled(b.run(columns, symbols), scale - b.scale))


def _sum(x: Units, y: Units) -> Units:
    return x + y if _most(x) + _most(y) <= MAX_INT else _wide(x) + _wide(y)


def _difference(x: Units, y: Units) -> Units:
    return x - y if _most(x) + _most(y) <= MAX_INT else _wide(x) - _wide(y)


def _product(e: Call, compiler: Compiler) -> Operand:
    a, b = (_operand(x, compiler) for x in e.args)

    def run(columns: Codes, symbols: Symbols) -> Exact:
        x, y = a.run(columns, symbols), b.run(columns, symbols)
        return Exact(_multiplied(x.units, y.units), _either(x.special, y.special))

    return Operand(a.scale + b.scale, run)


def _quotient(e: Call, compiler: Compiler) -> Operand:
    """The quotient, cut to whole words of digits as MySQL cuts it.  Division by zero is NULL."""
    a, b = (_operand(x, compiler) for x in e.args)
    first, second = _words(a.scale), _words(b.scale)
    scale = min(_words(first + second + max(INCREMENT - (first - a.scale) - (second - b.scale), 0)), MOST_DIGITS)
    up = max(scale - a.scale + b.scale, 0)

    def run(columns: Codes, symbols: Symbols) -> Exact:
        x, y = a.run(columns, symbols), b.run(columns, symbols)
        special, divisor = _either(x.special, y.special), y.units
        zero = divisor == 0
        if zero.any():
            divisor = np.where(zero, 1, divisor)
            special = _either(special, np.where(zero, NULL_CODE, 0))
        return Exact(_cut(_multiplied(x.units, _power(up)), divisor), special)

    return Operand(scale, run)


def _words(digits: int) -> int:
    return -(-digits // WORD) * WORD


def _remainder(e: Call, compiler: Compiler) -> Operand:
    a, b = (_operand(x, compiler) for x in e.args)
    aligned = _at_finer_scale(a, b)

    def run(columns: Codes, symbols: Symbols) -> Exact:
        x, y = aligned(columns, symbols)
        special, zero = _either(x.special, y.special), y.units == 0
        rest = np.abs(x.units) % np.abs(np.where(zero, 1, y.units))
        return Exact(np.where(x.units < 0, -rest, rest), _either(special, np.where(zero, NULL_CODE, 0)))

    return Operand(max(a.scale, b.scale), run)


def _unary(e: Call, compiler: Compiler) -> Operand:
    a, f = _operand(e.args[0], compiler), np.negative if e.op == "neg" else np.abs

    def run(columns: Codes, symbols: Symbols) -> Exact:
        x = a.run(columns, symbols)
        return Exact(f(x.units), x.special)

    return Operand(a.scale, run)


def _first(e: Call, compiler: Compiler) -> Operand:
    return _operand(e.args[0], compiler)


def _case(e: Call, compiler: Compiler) -> Operand:
    """The value of the first true condition; also of `if`.  An error in a condition before it makes the row fail."""
    arms = [(compiler.mask(c, True), compiler.value(c)) for c in e.args[:-1:2]]
    values, scale = _at_one_scale([*e.args[1::2], e.args[-1]], compiler)

    def run(columns: Codes, symbols: Symbols) -> Exact:
        out = values[-1](columns, symbols)
        for (true, condition), value in zip(reversed(arms), reversed(values[:-1]), strict=True):
            out = _chosen(true(columns, symbols), value(columns, symbols), out)
            failed = condition(columns, symbols) == _ERROR
            if failed.any():
                out = _chosen(failed, Exact(_ZERO, _ERROR), out)
        return out

    return Operand(scale, run)


def _coalesce(e: Call, compiler: Compiler) -> Operand:
    values, scale = _at_one_scale(e.args, compiler)

    def run(columns: Codes, symbols: Symbols) -> Exact:
        out = values[-1](columns, symbols)
        for value in values[-2::-1]:
            found = value(columns, symbols)
            if found.special is None:
                out = found
            else:
                out = _chosen(found.special != _NULL, found, out)
        return out

    return Operand(scale, run)


def _extreme(e: Call, compiler: Compiler) -> Operand:
    values, scale = _at_one_scale(e.args, compiler)
    better = np.greater if e.op == "greatest" else np.less

    def run(columns: Codes, symbols: Symbols) -> Exact:
        out = values[0](columns, symbols)
        for value in values[1:]:
            found = value(columns, symbols)
            special = _either(out.special, found.special)
            out = Exact(np.where(better(found.units, out.units), found.units, out.units), special)
        return out

    return Operand(scale, run)


def _at_one_scale(branches: Any, compiler: Compiler) -> tuple[list[Callable[[Codes, Symbols], Exact]], int]:
    operands = [_operand(b, compiler) for b in branches]
    scale = max(o.scale for o in operands)

    def at(o: Operand) -> Callable[[Codes, Symbols], Exact]:
        return lambda columns, symbols: _rescaled(o.run(columns, symbols), scale - o.scale)

    return [at(o) for o in operands], scale


def _chosen(mask: Any, a: Exact, b: Exact) -> Exact:
    special = None if a.special is None and b.special is None else np.where(
        mask, _ZERO if a.special is None else a.special, _ZERO if b.special is None else b.special)
    return Exact(np.where(mask, a.units, b.units), special)


_OPERANDS: dict[str, Callable[[Call, Compiler], Operand]] = {
    "add": lambda e, compiler: _same_scale(e, compiler, _sum),
    "sub": lambda e, compiler: _same_scale(e, compiler, _difference),
    "mul": _product, "div": _quotient, "mod": _remainder, "neg": _unary, "abs": _unary, "cast": _first,
    "total": lambda e, compiler: _same_scale(e, compiler, _sum),
    "case": _case, "if": _case, "coalesce": _coalesce, "greatest": _extreme, "least": _extreme}


# ------------------------------------------------------------------ where digits are cut
def _cast(e: Call, compiler: Compiler) -> Node:
    found = _operand(e.args[0], compiler)
    if e.type.kind is Kind.DOUBLE:
        single = casts.kernel(DOUBLE, e.type)
        return lambda columns, symbols: single(_doubles(found.run(columns, symbols), found.scale), symbols)
    scale = e.type.scale if e.type.kind is Kind.DECIMAL else 0
    limited = casts.kernel(decimal(MAX_DECIMAL_DIGITS, scale) if e.type.kind is Kind.DECIMAL else BIGINT, e.type)
    return lambda columns, symbols: limited(
        _codes(_rescaled(found.run(columns, symbols), scale - found.scale)), symbols)


def _doubles(found: Exact, scale: int) -> Codes:
    units, unit = found.units, 10**scale
    if units.dtype != object and scale <= EXACT_POWER and _most(units) <= casts.EXACT_DOUBLE:
        values = units / float(unit)
    else:
        values = np.array([int(u) / unit for u in units.tolist()], np.float64)
    return _with_specials(casts.doubles_to_codes(values), found.special)


def _rounding(e: Call, compiler: Compiler) -> Node:
    """Compile round, truncate, floor and ceil."""
    found, digits = _operand(e.args[0], compiler), 0
    if e.op in ("round", "truncate"):
        digits = max(e.args[1].value if isinstance(e.args[1], Const) else 0, -MOST_DIGITS)
    digits = min(digits, found.scale)
    unit, shift = 10 ** (found.scale - digits), e.type.scale - digits
    cut = _ROUNDINGS[e.op]

    def run(columns: Codes, symbols: Symbols) -> Codes:
        x = found.run(columns, symbols)
        units = cut(_wide(x.units) if unit > MAX_INT else x.units, unit)
        return _codes(_rescaled(Exact(units, x.special), shift))

    return run


_ROUNDINGS: dict[str, Callable[[Units, int], Units]] = {
    "round": lambda units, unit: _half_away(units, unit),
    "truncate": lambda units, unit: _cut(units, unit),
    "floor": lambda units, unit: units // unit,
    "ceil": lambda units, unit: -(-units // unit),
}


def _whole_quotient(e: Call, compiler: Compiler) -> Node:
    aligned = _at_finer_scale(*(_operand(x, compiler) for x in e.args))

    def run(columns: Codes, symbols: Symbols) -> Codes:
        x, y = aligned(columns, symbols)
        special, zero = _either(x.special, y.special), y.units == 0
        units = _cut(x.units, np.where(zero, 1, y.units))
        codes = _codes(Exact(units, _either(special, np.where(zero, NULL_CODE, 0))))
        return np.where((codes < 0) & (codes > _ERROR), _ERROR, codes) if e.type.unsigned else codes

    return run


# ------------------------------------------------------------------ arrays
def _most(units: Units) -> int:
    return int(np.abs(units).max())


def _wide(units: Units) -> Units:
    return units if units.dtype == object else units.astype(object)


def _power(digits: int) -> Units:
    power = 10**digits
    return np.array([power], np.int64 if power <= MAX_INT else object)


def _multiplied(x: Units, y: Units) -> Units:
    return x * y if _most(x) * _most(y) <= MAX_INT else _wide(x) * _wide(y)


def _cut(x: Units, y: Units | int) -> Units:
    size = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (np.asarray(y) < 0), -size, size)


def _half_away(units: Units, unit: int) -> Units:
    if units.dtype != object:
        return casts.divide_rounded(units, unit)
    size = (2 * np.abs(units) + unit) // (2 * unit)
    return np.where(units < 0, -size, size)


def _rescaled(x: Exact, digits: int) -> Exact:
    """Multiply by 10**digits, with rounding if digits is negative."""
    if digits >= 0:
        return Exact(_multiplied(x.units, _power(digits)), x.special) if digits else x
    unit = 10**-digits
    return Exact(_half_away(_wide(x.units) if unit > MAX_INT else x.units, unit), x.special)


def _codes(x: Exact) -> Codes:
    """Return int64 codes; a value that no code can hold is an error."""
    if x.units.dtype == object:
        units = np.array([u if MIN_INT <= u <= MAX_INT else ERROR_CODE for u in x.units.tolist()], np.int64)
    else:
        units = np.where(x.units <= _ERROR, _ERROR, x.units)
    return _with_specials(units, x.special)


def _with_specials(codes: Codes, special: Codes | None) -> Codes:
    return codes if special is None else np.where(special != 0, special, codes)


def _either(x: Codes | None, y: Codes | None) -> Codes | None:
    """Join what two operands have instead of values: an error if one is, and else NULL."""
    if x is None or y is None:
        return y if x is None else x
    return np.where((x == _ERROR) | (y == _ERROR), _ERROR, np.minimum(x, y))
