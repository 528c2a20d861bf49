"""Reads the row counts of LIMIT and OFFSET: literals or parameters."""

from __future__ import annotations

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import WRONG_ARGUMENTS
from noria.plan.lookups import Parameter
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.text.syntax import snippet


def limits_of(context: Context, query: PlannedQuery) -> tuple[int | None, int]:
    return count_of(context, query.limit), count_of(context, query.offset) or 0


def parameter_of(node: exp.Expr | None) -> Parameter | None:
    """The parameter that the node is, or None for a number or nothing."""
    return Parameter(int(node.this)) if isinstance(node, exp.Placeholder) else None


def count_of(context: Context, node: exp.Expr | None) -> int | None:
    """The number of rows, or None without a clause.  Raises error 1210 for a value that is not a row count."""
    if node is None:
        return None
    if isinstance(node, exp.Placeholder):
        value = getattr(context.parameter(node), "value", None)
        number = 0 if value is None else value
        if not isinstance(number, int) or number < 0:
            raise SqlError(*WRONG_ARGUMENTS, f"Incorrect arguments to LIMIT: '{number}' is no row count")
        return number
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    raise parse_error(f"LIMIT takes a number, near '{snippet(node)}'")
