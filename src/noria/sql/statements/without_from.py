"""Translates SELECT without FROM: constants, variables and functions of the session.  Call `select_items`."""

from __future__ import annotations

from sqlglot import exp

from noria.core.errors import SqlError, unknown_column
from noria.core.errors.codes import NO_TABLES_USED
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import wrong_count
from noria.core.types import BIGINT, TEXT, Field
from noria.sql.commands import OutputColumn, SelectItems
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.limit_offset import count_of
from noria.sql.query.select import column_name
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts

_FUNCTIONS = {"DATABASE": TEXT, "SCHEMA": TEXT, "VERSION": TEXT, "USER": TEXT, "CURRENT_USER": TEXT,
              "SESSION_USER": TEXT, "CONNECTION_ID": BIGINT, "LAST_INSERT_ID": BIGINT, "ROW_COUNT": BIGINT,
              "FOUND_ROWS": BIGINT}
LOCK_FUNCTIONS = {"GET_LOCK": 2, "RELEASE_LOCK": 1, "RELEASE_ALL_LOCKS": 0, "IS_FREE_LOCK": 1, "IS_USED_LOCK": 1}
"""The functions about the locks of sessions, with their numbers of arguments."""
_CLASSES: dict[type[exp.Expr], str] = {
    exp.CurrentSchema: "DATABASE", exp.CurrentVersion: "VERSION", exp.CurrentUser: "CURRENT_USER",
    exp.SessionUser: "SESSION_USER", exp.CurrentDatabase: "DATABASE",
}


def select_items(context: Context, tree: exp.Select) -> SelectItems:
    """Translate a SELECT without FROM to its items.  Refuses WHERE and OFFSET."""
    check_parts(tree, frozenset({"expressions", "limit", "where", "distinct", "offset", "hint"}), "SELECT without FROM")
    where, limit = tree.args.get("where"), tree.args.get("limit")
    if where is not None or tree.args.get("offset") is not None:
        raise refuse(f"{'OFFSET' if where is None else 'WHERE'} in a SELECT without FROM", tree, "leave it out")
    items = tuple(_item(context, n) for n in tree.expressions)
    return SelectItems(items, count_of(context, limit.expression if limit is not None else None))


def _item(context: Context, node: exp.Expr) -> OutputColumn:
    name, inner = column_name(node), node.unalias()
    if isinstance(inner, exp.SessionParameter):
        return OutputColumn(Field(name, TEXT), "variable", inner.name.lower(),
                            str(inner.args.get("kind") or "").lower())
    if isinstance(inner, exp.Parameter):
        return OutputColumn(Field(name, TEXT), "user_variable", inner.name.lower())
    function = _CLASSES.get(type(inner)) or (inner.name.upper() if isinstance(inner, exp.Anonymous) else "")
    if function in _FUNCTIONS:
        return OutputColumn(Field(name, _FUNCTIONS[function]), "function", function)
    if function in LOCK_FUNCTIONS:
        return OutputColumn(Field(name, BIGINT), "function", function, arguments=_arguments(context, function, inner))
    if isinstance(inner, exp.Star):
        raise SqlError(*NO_TABLES_USED, "No tables used")
    e = Resolver(_no_column, context.parameter, "field list")(inner)
    return OutputColumn(Field(name, e.type, e.nullable), value=constant(e))


def _arguments(context: Context, function: str, node: exp.Expr) -> tuple[OutputColumn, ...]:
    """The arguments of a function about locks: constants, variables and functions such as DATABASE()."""
    if len(node.expressions) != LOCK_FUNCTIONS[function]:
        raise wrong_count(function)
    found = tuple(_item(context, n) for n in node.expressions)
    if any(i.name in LOCK_FUNCTIONS for i in found if i.kind == "function"):
        raise refuse("a lock's function as an argument of another one", node, "call them one after the other")
    return found


def _no_column(name: str, table: str, clause: str) -> Expr:
    raise unknown_column(f"{table}.{name}" if table else name, clause)

