"""Plans x > ALL (SELECT y …), x <= ANY (SELECT y …) and their like from the least and the greatest y.

    x > ALL (…)     true over no rows, else x > MAX(y); unknown instead of true if some y is NULL
    x > ANY (…)     false over no rows, else x > MIN(y); unknown instead of false if some y is NULL
    x = ALL (…)     … x = MIN(y) AND x = MAX(y)
    x <> ANY (…)    … x <> MIN(y) OR x <> MAX(y)

x = ANY (…) is x IN (…), and x <> ALL (…) is x NOT IN (…) (`subqueries`).
"""

from __future__ import annotations

from sqlglot import exp

from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import call, literal
from noria.core.types import BOOL
from noria.plan.columns import col_of, cols_of
from noria.plan.mir import Aggregate, Distinct, agg
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.conditions.inner_queries import (
    check_width,
    columns,
    joined,
    operands_of,
    query_of,
    tree_of,
)
from noria.sql.query.conditions.scalar_subqueries import value_of
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.joins import JoinPair
from noria.sql.text.refusals import refuse

_BOUNDS: dict[tuple[str, type[exp.Expr]], tuple[str, ...]] = {
    **{(op, exp.All): ("max",) for op in ("gt", "ge")}, **{(op, exp.All): ("min",) for op in ("lt", "le")},
    **{(op, exp.Any): ("min",) for op in ("gt", "ge")}, **{(op, exp.Any): ("max",) for op in ("lt", "le")},
    ("eq", exp.All): ("min", "max"), ("ne", exp.Any): ("min", "max")}
_UNKNOWN = Const(BOOL, True, None)


def compared(block: Block, resolve: Resolver, node: exp.Expr, op: str, kind: type[exp.Expr]) -> Expr:
    """The value of a quantified comparison: true, false or NULL."""
    query, operands = query_of(block, tree_of(node)), operands_of(resolve, node)
    check_width(operands, query)
    (operand,) = operands
    if query.limit is not None or query.offset is not None:
        raise refuse("LIMIT in ANY or ALL (SELECT …)", node, "join with a derived table")
    if query.empty_row is not None:  # an aggregate without GROUP BY: one row for each row of the block
        return call(op, operand, value_of(block, query)[0])
    keys, every = query.correlations, kind is exp.All
    known = columns(query.plan, [*(col_of(query.plan, k.column) for k in keys), col_of(query.plan, 0)])
    value, bounds = len(keys), _BOUNDS[op, kind]
    aggregates = [agg("count_star", None, known.fields), agg("count", value, known.fields)]
    aggregates += [agg(b, value, known.fields) for b in bounds]
    groups = Aggregate(known, tuple(range(value)), tuple(aggregates), ("rows", "values", *bounds))
    rows, values, *ends = (col_of(groups, value + i) for i in range(len(aggregates)))
    flags = [call("gt", rows, literal(0)), call("gt", rows, values)]
    said = Distinct(columns(groups, [*cols_of(groups)[:value], *flags, *ends]))  # changes less often than the counts
    source = joined(block, said, [JoinPair(c.outer, col_of(said, i), c.null_safe) for i, c in enumerate(keys)], query)
    some, nulls = (call("coalesce", source.column(value + i), Const(BOOL, False, False)) for i in (0, 1))
    join, over_nothing = ("and", literal(True)) if every else ("or", literal(False))
    found = call(join, *(call(op, operand, source.column(value + 2 + i)) for i in range(len(ends))))
    found = call(join, found, call("if", nulls, _UNKNOWN, over_nothing)) if known.fields[value].nullable else found
    return call("if", some, found, over_nothing)
