"""Aggregates with all the digits that MySQL keeps inside an expression (`core/expressions/evaluate_exact.py`).

    AVG(x) * 100        SUM(x) / COUNT(x) * 100
    SUM(a / b)          total(SUM(whole), SUM(rest)), where whole is a / b cut to the digits of its type
    MAX(a / b) * 100    total(MAX(a / b with more digits), 0) * 100, if no value can be out of range

Keeps true: a sum of the rests takes no room from the sum of the whole values, so a SUM overflows where it did.
"""

from __future__ import annotations

from noria.core.expressions.evaluate_exact import WORD, scale_of
from noria.core.expressions.expr import Call, Col, Expr, is_unrounded
from noria.core.expressions.functions import call, cast, literal, with_arguments
from noria.core.expressions.functions.failing import can_fail
from noria.core.limits import MAX_DECIMAL_DIGITS
from noria.core.types import BIGINT, Field, Kind, decimal
from noria.plan.calls import agg
from noria.sql.expressions.leaves import AggCall

_READERS = frozenset({"add", "sub", "mul", "div", "intdiv", "mod", "neg", "abs", "round", "truncate", "floor", "ceil",
                      "cast", "eq", "ne", "lt", "le", "gt", "ge", "nseq", "in"})
_CHOICES = frozenset({"if", "case", "coalesce", "greatest", "least"})
_MOST_DIGITS = 15  # of a column whose sums are taken to fit


def with_all_digits(e: Expr, inside: bool = False) -> Expr:
    """Return the expression with its aggregates written so.  inside: it is an argument of arithmetic."""
    if isinstance(e, AggCall):
        return _aggregate(e, inside)
    if not isinstance(e, Call):
        return e
    inside = e.op in _READERS or (inside and e.op in _CHOICES)
    args = tuple(with_all_digits(a, inside) for a in e.args)
    return e if args == e.args else with_arguments(e, args)


def _aggregate(e: AggCall, inside: bool) -> Expr:
    x = e.argument
    if e.distinct or x is None:
        return e
    if e.function in ("min", "max"):
        return _extreme(e, x) if inside and is_unrounded(x) else e
    if e.function not in ("sum", "avg"):
        return e
    if is_unrounded(x):
        return _sum_of_parts(e, x)
    if e.function == "avg" and inside and _sum_fits(x):
        return call("div", _sum(x), AggCall(BIGINT, False, "count", x))
    return e


def _sum_of_parts(e: AggCall, x: Expr) -> Expr:
    digits = x.type.scale
    whole = call("truncate", x, literal(digits))
    scale = min(scale_of(x), digits + WORD, MAX_DECIMAL_DIGITS)
    rest = cast(call("sub", x, whole), decimal(MAX_DECIMAL_DIGITS, scale))
    total = call("total", _sum(whole), _sum(rest), literal(digits))
    return total if e.function == "sum" else call("div", total, AggCall(BIGINT, False, "count", x))


def _extreme(e: AggCall, x: Expr) -> Expr:
    finer = cast(x, decimal(MAX_DECIMAL_DIGITS, min(scale_of(x), x.type.scale + WORD, MAX_DECIMAL_DIGITS)))
    if can_fail(finer, lambda _: False):
        return e
    return call("total", AggCall(finer.type, True, e.function, finer), literal(0), literal(x.type.scale))


def _sum(x: Expr) -> AggCall:
    return AggCall(agg("sum", 0, (Field("", x.type, True),)).type, True, "sum", x)


def _sum_fits(x: Expr) -> bool:
    """False for a column of numbers so large that their sum may overflow where their average does not."""
    if x.type.kind is Kind.DECIMAL:
        return x.type.precision <= _MOST_DIGITS or not isinstance(x, Col)
    return x.type.kind is Kind.INT and (x.type.bits < BIGINT.bits or not isinstance(x, Col))
