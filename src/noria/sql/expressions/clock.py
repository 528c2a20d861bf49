"""Replaces the clock, variables and functions of the session by their values before planning: no view depends on them.

    … WHERE created > NOW() - INTERVAL 1 DAY    →    … WHERE created > ?
    … WHERE id = LAST_INSERT_ID()               →    … WHERE id = ?

The largest expression around NOW() without columns is evaluated.  Beside a comparison it becomes a parameter, so that
one view answers at any time; elsewhere it becomes a literal.  A view's definition with NOW() is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from sqlglot import exp

from noria.core.errors import unknown_column
from noria.core.expressions.casts import show
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import at_time, literal
from noria.core.types import TEXT, SqlType
from noria.sql.expressions.functions import CLOCK_CLASSES, CLOCK_NAMES
from noria.sql.expressions.scalars import Resolver
from noria.sql.text.refusals import refuse
from noria.sql.text.trees import has, nodes

_AROUND = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Paren, exp.Neg, exp.Cast,
           exp.Anonymous, exp.Extract)
_UNKNOWN = (exp.Column, exp.Placeholder, exp.Subquery, exp.Select, exp.AggFunc, exp.Star, exp.Parameter,
            exp.SessionParameter)


SESSION_FUNCTIONS = {"DATABASE", "SCHEMA", "VERSION", "USER", "CURRENT_USER", "CURRENT_ROLE", "SESSION_USER",
                     "SYSTEM_USER", "CONNECTION_ID", "LAST_INSERT_ID", "ROW_COUNT", "FOUND_ROWS"}
SESSION_CLASSES: dict[type[exp.Expr], str] = {
    exp.CurrentSchema: "DATABASE", exp.CurrentVersion: "VERSION", exp.CurrentUser: "CURRENT_USER",
    exp.SessionUser: "SESSION_USER", exp.CurrentDatabase: "DATABASE",
}


_SESSION_KINDS = {exp.Parameter, exp.SessionParameter, exp.Anonymous, *SESSION_CLASSES}


class Moment(NamedTuple):
    """What a statement that depends on its session reads.

    utc: the time.  offset: how far the session's clock is ahead.  value: of a variable or function of the session, by
    its kind ("user_variable", "variable" or "function"), name and scope.
    """

    utc: datetime
    offset: timedelta
    value: Callable[[str, str, str], Any]


_NUMBERS = {"CONNECTION_ID", "LAST_INSERT_ID", "ROW_COUNT", "FOUND_ROWS"}
SOME_MOMENT = Moment(datetime(2000, 1, 1), timedelta(), lambda kind, name, scope: 0 if name in _NUMBERS else "")
"""For planning a statement before it runs."""


def reads_session(nodes: Iterable[exp.Expr]) -> bool:
    """Whether one of the nodes reads a variable or calls a function of the session."""
    return any(type(n) in _SESSION_KINDS and _of_session(n) is not None for n in nodes)


def _of_session(node: exp.Expr) -> tuple[str, str, str] | None:
    """The kind, name and scope of a variable or function of the session; None for another node."""
    if isinstance(node, exp.Parameter):
        return "user_variable", node.name.lower(), ""
    if isinstance(node, exp.SessionParameter):
        return "variable", node.name.lower(), str(node.args.get("kind") or "").lower()
    name = session_function(node)
    return None if not name else ("function", name, "")


def session_function(node: exp.Expr) -> str:
    """The name of a function of the session; "" for another node."""
    if isinstance(node, exp.Anonymous):
        name = node.name.upper()
        return name if name in SESSION_FUNCTIONS and not node.expressions else ""
    return SESSION_CLASSES.get(type(node), "")


def reads_clock(nodes: Iterable[exp.Expr]) -> bool:
    """Whether one of the nodes reads the clock."""
    return any(_is_clock(n) for n in nodes)


def _is_clock(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        name = node.name.upper()
        return name in CLOCK_NAMES and not (name == "UNIX_TIMESTAMP" and bool(node.expressions))
    return type(node) in CLOCK_CLASSES


def at(tree: exp.Expr, parameters: int, moment: Moment, session: bool = True) -> tuple[exp.Expr, list[Any]]:
    """Replace the clock and, if `session` is set, what is read of the session by values.

    Returns the tree and the values of the parameters that were added after the tree's own, whose number is
    `parameters`.
    """
    tree = tree.copy()
    values: list[Any] = []
    for node in [n for n in nodes(tree) if session and _of_session(n) is not None]:
        value = moment.value(*(_of_session(node) or ("", "", "")))
        tree = _replaced(tree, node, value, _literal(value, TEXT), parameters, values)
    while (timed := next((n for n in nodes(tree) if _is_clock(n)), None)) is not None:
        while isinstance(timed.parent, _AROUND) and not has(timed.parent, *_UNKNOWN):
            timed = timed.parent
        e = Resolver(_no_column, _no_parameter, "field list", clock=True)(timed)
        value = constant(at_time(e, moment.utc, moment.offset))
        tree = _replaced(tree, timed, value, _literal(value, e.type), parameters, values)
    return tree, values


def _replaced(tree: exp.Expr, node: exp.Expr, value: Any, written: exp.Expr, parameters: int, values: list[Any]
              ) -> exp.Expr:
    """The tree with the value in place of the node: beside a comparison as a parameter, else as written."""
    made = written
    if isinstance(node.parent, exp.Predicate):
        made = exp.Placeholder(this=str(parameters + len(values)))
        values.append(value)
    made.meta.update(node.meta)
    if node is tree:
        return made
    node.replace(made)
    return tree


def in_zone(tree: exp.Expr, zone: str) -> exp.Expr:
    """Let FROM_UNIXTIME and UNIX_TIMESTAMP(moment) mean the zone of the session.

    FROM_UNIXTIME(x)     →   CONVERT_TZ(FROM_UNIXTIME(x), '+00:00', zone)
    UNIX_TIMESTAMP(x)    →   UNIX_TIMESTAMP(CONVERT_TZ(x, zone, '+00:00'))
    """
    def converted(e: exp.Expr, source: str, target: str) -> exp.Expr:
        return exp.Anonymous(this="CONVERT_TZ", expressions=[e, exp.Literal.string(source), exp.Literal.string(target)])

    for node in reversed([n for n in nodes(tree) if isinstance(n, exp.Anonymous) and n.expressions]):
        name = node.name.upper()
        if name == "UNIX_TIMESTAMP":
            node.set("expressions", [converted(node.expressions[0].copy(), zone, "+00:00")])
        elif name == "FROM_UNIXTIME":
            first, *form = node.expressions
            utc = exp.Anonymous(this="FROM_UNIXTIME", expressions=[first.copy()])
            made = converted(utc, "+00:00", zone)
            if form:
                made = exp.Anonymous(this="DATE_FORMAT", expressions=[made, *form])
            made.meta.update(node.meta)
            node.replace(made)
    return tree


def literal_of(value: Any) -> exp.Expr:
    """A literal node of a parameter's value."""
    e = literal(value)
    return _literal(e.value if isinstance(e, Const) else value, e.type)


def _no_column(name: str, table: str, clause: str) -> Expr:
    raise unknown_column(name, clause)


def _no_parameter(node: exp.Placeholder) -> Expr:
    raise refuse("a parameter beside the time", node, "compute the value in the application")


def _literal(value: Any, type: SqlType) -> exp.Expr:
    """A literal node of the value and its type."""
    if value is None:
        return exp.Null()
    if isinstance(value, bytes):
        return exp.Introducer(this="_binary", expression=exp.HexString(this=value.hex()))
    if isinstance(value, (int, Decimal, float)):
        number: exp.Expr = exp.Literal.number(abs(value))
        return exp.Neg(this=number) if value < 0 else number
    text = exp.Literal.string(show(value, type) if isinstance(value, (date, timedelta)) else str(value))
    if not isinstance(value, (date, timedelta)):
        return text
    return exp.Cast(this=text, to=exp.DataType.build(type.sql(), dialect="mysql"))
