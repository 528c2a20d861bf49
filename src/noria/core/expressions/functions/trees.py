"""Whole expression trees: replacing columns, the one form of conditions that say the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from noria.core.expressions.expr import Call, Col, Const, Expr, Param, walk
from noria.core.expressions.functions.base import CLOCK, TRUE, call, cast, literal, retyped
from noria.core.expressions.functions.logic import FLIPPED
from noria.core.types import DATETIME


def rebuilt(e: Expr, column: Callable[[Col], Expr]) -> Expr:
    """The expression with every column replaced, types and nullability worked out again."""
    if isinstance(e, Col):
        return column(e)
    if not isinstance(e, Call):
        return e
    args = tuple(rebuilt(a, column) for a in e.args)
    return _again(e, args)


def zero_divisors(e: Expr) -> list[Expr]:
    """For each division that is surely worked out: the condition that its divisor is zero.  What stands in a branch
    of a choice may be guarded by its condition."""
    if not isinstance(e, Call):
        return []
    found = [t for a in (e.args[:1] if e.op in LAZY else e.args) for t in zero_divisors(a)]
    if e.op in ("div", "intdiv", "mod"):
        found.append(call("and", call("eq", e.args[1], literal(0)), call("not", call("is_null", e.args[0]))))
    return found


LAZY = frozenset({"if", "case", "coalesce", "and", "or"})


def now(scale: int, universal: bool = False) -> Expr:
    """The time of the statement, in the session's time zone or in UTC; `at_time` puts it in."""
    return Call(replace(DATETIME, scale=scale), False, "now", (literal(universal),))


def uses_clock(e: Expr) -> bool:
    return any(isinstance(x, Call) and x.op in CLOCK for x in walk(e))


def at_time(e: Expr, utc: datetime, offset: timedelta) -> Expr:
    """The expression with the statement's time, which is the same wherever it stands; cut to its digits."""
    if not isinstance(e, Call):
        return e
    if e.op == "now":
        universal = isinstance(e.args[0], Const) and e.args[0].value
        return Const(e.type, False, cut(utc if universal else utc + offset, e.type.scale))
    args = tuple(at_time(a, utc, offset) for a in e.args)
    return e if args == e.args else _again(e, args)


def cut(moment: datetime, scale: int) -> datetime:
    """Without digits beyond the scale: the clock is never ahead of itself."""
    return moment.replace(microsecond=moment.microsecond // 10 ** (6 - scale) * 10 ** (6 - scale))


def _again(e: Call, args: tuple[Expr, ...]) -> Expr:
    """The call on other arguments."""
    if e.op in CLOCK:
        return e
    if e.op in ("cast", "retype"):
        return (cast if e.op == "cast" else retyped)(args[0], e.type)
    return call(e.op, *args)


def with_values(e: Expr, values: Sequence[Any]) -> Expr:
    """The expression with the values of its parameters, typed anew."""
    if isinstance(e, Param):
        return literal(values[e.index])
    if not isinstance(e, Call):
        return e
    args = tuple(with_values(a, values) for a in e.args)
    return e if args == e.args else _again(e, args)


def canonical(e: Expr) -> Expr:
    """The same condition or value for every way to write it that differs in the order of operands only."""
    if not isinstance(e, Call):
        return e
    args = tuple(map(canonical, e.args))
    if e.op in ("and", "or"):
        args = tuple(sorted(args, key=str))
    elif e.op in FLIPPED and not isinstance(args[1], Const) and str(args[1]) < str(args[0]):
        return replace(e, op=FLIPPED[e.op], args=args[::-1])
    return replace(e, args=args)


def conjunction(terms: Sequence[Expr]) -> Expr | None:
    """All of the terms as one canonical condition; None when that is no condition at all."""
    e = canonical(call("and", TRUE, *terms))
    return None if e == TRUE else e
