"""Replaces the clock in SELECTs by the statement's time before planning; no view depends on the time.

    … WHERE created > NOW() - INTERVAL 1 DAY    →    … WHERE created > ?

The largest expression around NOW() without columns is evaluated.  Beside a comparison it becomes a parameter, so that
one view answers at any time; elsewhere it becomes a literal.  A view's definition with NOW() is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlglot import exp

from noria.core.errors import unknown_column
from noria.core.expressions.casts import show
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import at_time
from noria.core.types import SqlType
from noria.sql.expressions.functions import CLOCK_CLASSES, CLOCK_NAMES
from noria.sql.expressions.scalars import Resolver
from noria.sql.text.refusals import refuse
from noria.sql.text.trees import has, nodes

_AROUND = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Paren, exp.Neg, exp.Cast,
           exp.Anonymous, exp.Extract)
_UNKNOWN = (exp.Column, exp.Placeholder, exp.Subquery, exp.Select, exp.AggFunc, exp.Star, exp.Parameter,
            exp.SessionParameter)


def reads_clock(nodes: Iterable[exp.Expr]) -> bool:
    """Whether one of the nodes reads the clock."""
    return any(_is_clock(n) for n in nodes)


def _is_clock(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        name = node.name.upper()
        return name in CLOCK_NAMES and not (name == "UNIX_TIMESTAMP" and bool(node.expressions))
    return type(node) in CLOCK_CLASSES


def at(tree: exp.Expr, parameters: int, utc: datetime, offset: timedelta) -> tuple[exp.Expr, list[Any]]:
    """Replace the clock by the time `utc`, in a session whose clock is `offset` ahead of UTC.

    Returns the tree and the values of the parameters that were added after the tree's own, whose number is
    `parameters`.
    """
    tree = tree.copy()
    values: list[Any] = []
    while (node := next((n for n in nodes(tree) if _is_clock(n)), None)) is not None:
        while isinstance(node.parent, _AROUND) and not has(node.parent, *_UNKNOWN):
            node = node.parent
        e = Resolver(_no_column, _no_parameter, "field list", clock=True)(node)
        value = constant(at_time(e, utc, offset))
        if isinstance(node.parent, exp.Predicate):
            made: exp.Expr = exp.Placeholder(this=str(parameters + len(values)))
            values.append(value)
        else:
            made = _literal(value, e.type)
        made.meta.update(node.meta)
        node.replace(made)
    return tree, values


def _no_column(name: str, table: str, clause: str) -> Expr:
    raise unknown_column(name, clause)


def _no_parameter(node: exp.Placeholder) -> Expr:
    raise refuse("a parameter beside the time", node, "compute the value in the application")


def _literal(value: Any, type: SqlType) -> exp.Expr:
    """A literal node of the value and its type."""
    if value is None:
        return exp.Null()
    if isinstance(value, (int, Decimal, float)):
        number: exp.Expr = exp.Literal.number(abs(value))
        return exp.Neg(this=number) if value < 0 else number
    text = exp.Literal.string(show(value, type) if isinstance(value, (date, timedelta)) else str(value))
    if not isinstance(value, (date, timedelta)):
        return text
    return exp.Cast(this=text, to=exp.DataType.build(type.sql(), dialect="mysql"))
