"""Whole expression trees: replacing columns, the one form of conditions that say the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from noria.core.expr import Call, Col, Const, Expr, Param
from noria.core.functions.base import TRUE, call, cast, literal, retyped
from noria.core.functions.logic import FLIPPED


def rebuilt(e: Expr, column: Callable[[Col], Expr]) -> Expr:
    """The expression with every column replaced, types and nullability worked out again."""
    if isinstance(e, Col):
        return column(e)
    if not isinstance(e, Call):
        return e
    args = tuple(rebuilt(a, column) for a in e.args)
    return _again(e, args)


def _again(e: Call, args: tuple[Expr, ...]) -> Expr:
    """The call on other arguments."""
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
