"""Rewrites of expression trees: replaces columns, parameters and the clock, and normalises the order of operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from noria.core.expressions.expr import Call, Col, Const, Expr, Param, walk
from noria.core.expressions.functions.base import CLOCK, TRUE, call, cast, literal, retyped
from noria.core.expressions.functions.logic import FLIPPED
from noria.core.expressions.lenient import FITTED
from noria.core.types import DATETIME, Column


def rebuilt(e: Expr, column: Callable[[Col], Expr]) -> Expr:
    """Replace each column, and derive types and nullability again."""
    return column(e) if isinstance(e, Col) else with_each_argument(e, lambda a: rebuilt(a, column))


def with_each_argument(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Change each argument of a call.  Other expressions stay as they are."""
    return with_arguments(e, tuple(map(change, e.args))) if isinstance(e, Call) else e


def zero_divisors(e: Expr) -> list[Expr]:
    """Return for each division that is always evaluated the condition that its divisor is zero.

    Divisions in a branch of a choice are left out: the choice's condition may guard them.
    """
    if not isinstance(e, Call) or e.op == FITTED:
        return []
    found = [t for a in (e.args[:1] if e.op in LAZY else e.args) for t in zero_divisors(a)]
    if e.op in ("div", "intdiv", "mod"):
        found.append(call("and", call("eq", e.args[1], literal(0)), call("not", call("is_null", e.args[0]))))
    return found


def undivided(e: Expr) -> Expr:
    """The expression in which a division by zero is NULL and no error: `zero_divisors` finds none in it."""
    if not isinstance(e, Call):
        return e
    made = with_each_argument(e, undivided)
    if not (isinstance(made, Call) and made.op in ("div", "intdiv", "mod")):
        return made
    return call("if", call("eq", made.args[1], literal(0)), literal(None), made)


def fitted(e: Expr, column: Column) -> Expr:
    """What the column keeps of a value that may not fit it, as MySQL decides it where a write is not strict.

    A division by zero is NULL.  A column that may not have NULL keeps its implicit default."""
    return Call(column.type, column.nullable, FITTED, (e,))


LAZY = frozenset({"if", "case", "coalesce", "and", "or"})


def now(scale: int, universal: bool = False) -> Expr:
    """Make a call of the statement's time, in the session's time zone or in UTC.  `at_time` replaces it."""
    return Call(replace(DATETIME, scale=scale), False, "now", (literal(universal),))


def uses_clock(e: Expr) -> bool:
    return any(isinstance(x, Call) and x.op in CLOCK for x in walk(e))


def at_time(e: Expr, utc: datetime, offset: timedelta) -> Expr:
    """Replace each call of the clock by the statement's time, cut to the digits of its type."""
    if not isinstance(e, Call):
        return e
    if e.op == "now":
        universal = isinstance(e.args[0], Const) and e.args[0].value
        return Const(e.type, False, cut(utc if universal else utc + offset, e.type.scale))
    args = tuple(at_time(a, utc, offset) for a in e.args)
    return e if args == e.args else with_arguments(e, args)


def cut(moment: datetime, scale: int) -> datetime:
    """Remove the digits beyond the scale without rounding, so that the clock is never ahead of time."""
    return moment.replace(microsecond=moment.microsecond // 10 ** (6 - scale) * 10 ** (6 - scale))


def with_arguments(e: Call, args: tuple[Expr, ...]) -> Expr:
    """Make the same call with other arguments, and derive its type and nullability again."""
    if e.op in CLOCK:
        return e
    if e.op == FITTED:
        return replace(e, args=args)
    if e.op in ("cast", "retype"):
        return (cast if e.op == "cast" else retyped)(args[0], e.type)
    return call(e.op, *args)


def with_values(e: Expr, values: Sequence[Any]) -> Expr:
    """Replace the parameters by their values, and derive types again."""
    if isinstance(e, Param):
        return literal(values[e.index])
    if not isinstance(e, Call):
        return e
    args = tuple(with_values(a, values) for a in e.args)
    return e if args == e.args else with_arguments(e, args)


def canonical(e: Expr) -> Expr:
    """Sort the operands, so that expressions that differ only in their order become equal."""
    if not isinstance(e, Call):
        return e
    args = tuple(map(canonical, e.args))
    if e.op in ("and", "or"):
        args = tuple(sorted(args, key=str))
    elif e.op in FLIPPED and not isinstance(args[1], Const) and str(args[1]) < str(args[0]):
        return replace(e, op=FLIPPED[e.op], args=args[::-1])
    return replace(e, args=args)


def conjunction(terms: Sequence[Expr]) -> Expr | None:
    """Return the canonical conjunction of the terms, or None if it is always true."""
    e = canonical(call("and", TRUE, *terms))
    return None if e == TRUE else e
