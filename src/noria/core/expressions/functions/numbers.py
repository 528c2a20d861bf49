"""Makes typed calls of arithmetic: add sub mul div intdiv mod neg abs round truncate floor ceil.

Keeps true, for the evaluators: the arguments of add, sub, intdiv and mod are all DOUBLE, all INT, or all DECIMAL of one
scale.  Those of mul and div are all DOUBLE, or INT and DECIMAL of any scales.  Of add, sub, mul and intdiv, an INT
result is unsigned if an argument is; the evaluators then make a negative result an error.
"""

from __future__ import annotations

from dataclasses import replace

from noria.core.errors import not_supported
from noria.core.expressions.expr import Call, Const, Expr, is_unrounded
from noria.core.expressions.functions.base import TYPING, Args, aligned, as_number, cast, literal, nullable
from noria.core.limits import MAX_DECIMAL_DIGITS
from noria.core.types import BIGINT, DOUBLE, Kind, SqlType, decimal


def _sum(op: str, args: Args) -> Expr:
    """Make add or sub.  INT yields BIGINT, DECIMAL keeps the larger scale, and a DOUBLE argument yields DOUBLE."""
    args = aligned(args)
    return Call(_result(args[0].type, args[0].type.scale, args), nullable(args), op, args)


def _result(type: SqlType, scale: int, args: Args = ()) -> SqlType:
    if type.kind is Kind.INT:
        return replace(BIGINT, unsigned=any(a.type.unsigned for a in args))
    return DOUBLE if type.kind is Kind.DOUBLE else decimal(MAX_DECIMAL_DIGITS, scale)


def _doubles_or_exact(args: Args) -> Args:
    numbers = tuple(as_number(a) for a in args)
    if any(n.type.kind is Kind.DOUBLE for n in numbers):
        return tuple(cast(n, DOUBLE) for n in numbers)
    return numbers


def _product(op: str, args: Args) -> Expr:
    args = _doubles_or_exact(args)
    scale = args[0].type.scale + args[1].type.scale
    if scale > MAX_DECIMAL_DIGITS:
        raise not_supported(f"a product with {scale} digits after the point", "cast a factor to fewer digits")
    exact = next((a.type for a in args if a.type.kind is not Kind.INT), BIGINT)
    return Call(_result(exact, scale, args), nullable(args), op, args)


def _quotient(op: str, args: Args) -> Expr:
    """Make div.  A DECIMAL result has four more fractional digits than the dividend.  Division by zero is NULL."""
    args = _doubles_or_exact(args)
    if args[0].type.kind is Kind.DOUBLE:
        return Call(DOUBLE, True, op, args)
    return Call(decimal(MAX_DECIMAL_DIGITS, min(args[0].type.scale + 4, MAX_DECIMAL_DIGITS)), True, op, args)


def _integer_quotient(op: str, args: Args) -> Expr:
    args = aligned(args)
    return Call(_result(BIGINT, 0, args), True, op, args)


def _remainder(op: str, args: Args) -> Expr:
    args = aligned(args)
    return Call(_result(args[0].type, args[0].type.scale, args[:1]), True, op, args)


def _signed(op: str, args: Args) -> Expr:
    """Make neg or abs."""
    a = as_number(args[0])
    return Call(_result(a.type, a.type.scale), a.nullable, op, (a,))


def _rounded(op: str, args: Args) -> Expr:
    """Make round(x[, digits]), half away from zero, or truncate, towards zero.  The digits must be a constant.

    A DECIMAL gets the requested number of fractional digits, but at most four more than its type has.
    """
    a = as_number(args[0])
    digits = args[1] if len(args) > 1 else literal(0)
    if not isinstance(digits, Const) or not isinstance(digits.value, int):
        raise not_supported("rounding to a number of digits that is not an integer literal", "write the digits out")
    if a.type.kind is Kind.DECIMAL:
        scale = min(max(digits.value, 0), a.type.scale + 4, MAX_DECIMAL_DIGITS)
        if digits.value > a.type.scale and not is_unrounded(a):
            return cast(a, decimal(MAX_DECIMAL_DIGITS, scale))
        return Call(decimal(MAX_DECIMAL_DIGITS, scale), a.nullable, op, (a, digits))
    return Call(_result(a.type, 0), a.nullable, op, (a, digits))


def _floor_or_ceil(op: str, args: Args) -> Expr:
    """Make floor or ceil.  An integer is returned unchanged."""
    a = as_number(args[0])
    if a.type.kind is Kind.INT:
        return a
    return Call(DOUBLE if a.type.kind is Kind.DOUBLE else BIGINT, a.nullable, op, (a,))


def _total(op: str, args: Args) -> Expr:
    """Make total(whole, rest, digits): their sum, whose type has so many digits.  The rest may have more."""
    digits = args[2].value if isinstance(args[2], Const) else 0
    return Call(decimal(MAX_DECIMAL_DIGITS, digits), nullable(args), op, args)


def rounded(e: Expr) -> Expr:
    """The value with no more digits than its type."""
    return Call(e.type, e.nullable, "round", (e, literal(e.type.scale))) if is_unrounded(e) else e


def for_column(e: Expr, type: SqlType) -> Expr:
    """What a column of the type stores of a value: with the digits that the value's own type does not have."""
    if not is_unrounded(e) or type.kind not in (Kind.INT, Kind.DECIMAL, Kind.DOUBLE):
        return e
    if type.kind is Kind.DOUBLE:
        return cast(e, DOUBLE)
    digits = type.scale if type.kind is Kind.DECIMAL else 0
    return Call(decimal(MAX_DECIMAL_DIGITS, digits), e.nullable, "round", (e, literal(digits)))


TYPING.update({
    "total": (3, 3, _total),
    **dict.fromkeys(("add", "sub"), (2, 2, _sum)),
    "mul": (2, 2, _product),
    "div": (2, 2, _quotient),
    "intdiv": (2, 2, _integer_quotient),
    "mod": (2, 2, _remainder),
    **dict.fromkeys(("neg", "abs"), (1, 1, _signed)),
    **dict.fromkeys(("round", "truncate"), (1, 2, _rounded)),
    **dict.fromkeys(("floor", "ceil"), (1, 1, _floor_or_ceil)),
})
