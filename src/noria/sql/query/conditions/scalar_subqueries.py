"""Plans a SELECT in place of a value, as a LEFT JOIN of its block.

    (SELECT MAX(c) … WHERE u.a = t.a)    t ⟕ max(c) by u.a; over no rows, the aggregate's value over nothing

    (SELECT c … ORDER BY d LIMIT 1)      t ⟕ the first row by u.a

    (SELECT c … WHERE u.a = t.a)         t ⟕ min(c), count(*) by u.a; an error if the count is above 1
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import call, literal
from noria.core.expressions.functions.failing import only_one
from noria.plan.columns import col_of, cols_of
from noria.plan.mir import Aggregate, TopK, agg
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.conditions.inner_queries import check_width, columns, joined, query_of
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.joins import JoinPair
from noria.sql.query.relations.limit_offset import limits_of
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.text.refusals import refuse
from noria.sql.text.trees import has

_EQUALITIES: dict[type[exp.Expr], tuple[str, str]] = {exp.EQ: ("eq", "and"), exp.NEQ: ("ne", "or"),
                                                      exp.NullSafeEQ: ("nseq", "and")}


def scalar(block: Block, node: exp.Subquery) -> Expr:
    """The value of a scalar subquery: NULL if it has no row, an error if it has several."""
    return _row(block, node, 1)[0]


def row_compared(block: Block, resolve: Resolver, node: exp.Expr) -> Expr:
    """The value of (a, b) = (SELECT c, d …), and of <> and <=>."""
    row, select = (node.this, node.expression) if isinstance(node.this, exp.Tuple) else (node.expression, node.this)
    if type(node) not in _EQUALITIES:
        raise refuse("the order of a row and a subquery", node, "compare column by column")
    op, join = _EQUALITIES[type(node)]
    values = _row(block, select, len(row.expressions))
    return call(join, *(call(op, resolve(a), b) for a, b in zip(row.expressions, values, strict=True)))


def _row(block: Block, node: exp.Subquery, width: int) -> list[Expr]:
    """The columns of a subquery of at most one row."""
    query = query_of(block, _without_having(node.this))
    check_width([literal(1)] * width, query)
    if query.limit is not None or query.offset is not None:
        query = _first(block, node, query, tuple(dict.fromkeys(k.column for k in query.correlations)))
    if query.single:
        return value_of(block, query)
    *values, rows = value_of(block, _counted(query))
    return [only_one(v, rows) for v in values]


def _counted(query: PlannedQuery) -> PlannedQuery:
    """The query with one row for each value of its correlations: the least of its values, and how many rows it has."""
    keys = tuple(dict.fromkeys(k.column for k in query.correlations))
    shown = [col_of(query.plan, i) for i in range(query.visible)]
    known = columns(query.plan, [*shown, *(col_of(query.plan, k) for k in keys)])
    by = tuple(range(len(shown), known.width))
    aggregates = [agg("count_star", None, known.fields), *(agg("min", i, known.fields) for i in range(len(shown)))]
    groups = Aggregate(known, by, tuple(aggregates), ("rows", *(f"value{i}" for i in range(len(shown)))))
    rows, *values = (col_of(groups, len(by) + i) for i in range(len(aggregates)))
    plan = columns(groups, [*values, rows, *cols_of(groups)[:len(by)]])
    place = {k: len(aggregates) + i for i, k in enumerate(keys)}
    return replace(query, plan=plan, visible=len(aggregates),
                   correlations=tuple(replace(c, column=place[c.column]) for c in query.correlations))


def having_of_one(tree: exp.Expr) -> exp.Select | None:
    """SELECT SUM(c) … HAVING SUM(c) > 3   →   SELECT SUM(c) > 3 …, for an aggregate without GROUP BY, which has one row
    or, by HAVING, none.  None for another query."""
    if not isinstance(tree, exp.Select) or tree.args.get("having") is None or tree.args.get("group") is not None:
        return None
    condition = tree.args["having"].this
    if tree.args.get("limit") is not None or not any(has(e, exp.AggFunc) for e in (*tree.expressions, condition)):
        return None
    of_alias = {e.alias.lower(): e.unalias() for e in tree.expressions if isinstance(e, exp.Alias)}
    made = tree.copy()
    made.set("having", None)
    made.set("expressions", [_with_items(condition.copy(), of_alias)])
    return made


def _with_items(node: exp.Expr, of_alias: dict[str, exp.Expr]) -> exp.Expr:
    """The condition with select items in place of their aliases."""
    return node.transform(lambda n: exp.Paren(this=of_alias[n.name.lower()].copy()) if isinstance(
        n, exp.Column) and not n.table and n.name.lower() in of_alias else n)


def _without_having(tree: exp.Expr) -> exp.Expr:
    """SELECT a … HAVING h   →   SELECT CASE WHEN h THEN a END …, for an aggregate without GROUP BY"""
    condition = having_of_one(tree)
    if condition is None:
        return tree
    made = condition.copy()
    made.set("expressions", [exp.Case(ifs=[exp.If(this=condition.expressions[0].copy(), true=e.unalias().copy())])
                             for e in tree.expressions])
    return made


def value_of(block: Block, query: PlannedQuery) -> list[Expr]:
    """The columns of a query of at most one row for each row of the block; NULL without a row."""
    keys, width = query.correlations, query.visible
    shown = [col_of(query.plan, i) for i in range(width)]
    plan = columns(query.plan, [*(col_of(query.plan, k.column) for k in keys), *shown, literal(1)])
    pairs = [JoinPair(c.outer, col_of(plan, i), c.null_safe) for i, c in enumerate(keys)]
    source = joined(block, plan, pairs, query)
    found: list[Expr] = []
    for i in range(width):
        value = source.column(len(keys) + i)
        if query.empty_row is None or query.empty_row[i] is None:
            found.append(value)
        else:
            of_nothing = Const(value.type, False, query.empty_row[i])
            found.append(call("if", call("is_null", source.column(len(keys) + width)), of_nothing, value))
    return found


def _first(block: Block, node: exp.Expr, query: PlannedQuery, keys: tuple[int, ...]) -> PlannedQuery:
    """Apply the query's LIMIT 1 to each value of its keys."""
    limit, offset = limits_of(block.context.inner(), query)
    if query.single and limit and not offset:
        return replace(query, limit=None)
    if query.empty_row is not None or limit is None or limit > 1:
        raise refuse("LIMIT in a subquery here, unless it is LIMIT 1", node)
    plan = TopK(query.plan, keys, query.order, limit, offset)
    return replace(query, plan=plan, limit=None, offset=None, single=True)
