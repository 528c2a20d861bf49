"""Plans subqueries in expressions as LEFT JOINs of their block (section 5.1).

    EXISTS (SELECT … WHERE u.a = t.a)    t ⟕ distinct u.a, 1;  the join's mark is not NULL
    x IN (SELECT y …)                    t ⟕ distinct y, 1 on x = y;  as a term of WHERE it becomes an inner join
    x NOT IN (SELECT y …)                … and ⟕ COUNT(*), COUNT(y): unknown if there are rows, and x or some y is NULL
    x > ALL (SELECT y …)                 `quantified`
    (SELECT MAX(c) … WHERE u.a = t.a)    `scalar_subqueries`

What they share is in `inner_queries`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from noria.core.expressions.expr import Const, Expr
from noria.core.expressions.functions import call, literal
from noria.core.types import BOOL
from noria.plan.columns import col_of, cols_of
from noria.plan.lookups import Key
from noria.plan.mir import Aggregate, Distinct, Mir, agg
from noria.sql.expressions.leaves import uses_aggregate
from noria.sql.expressions.scalars import Resolver, known
from noria.sql.query.conditions.inner_queries import (
    check_width,
    columns,
    joined,
    operands_of,
    query_of,
    tree_of,
)
from noria.sql.query.conditions.quantified import compared
from noria.sql.query.conditions.scalar_subqueries import having_of_one, row_compared, scalar, value_of
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.joins import JoinedPlan, JoinPair
from noria.sql.query.relations.planned import PlannedQuery
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import is_row_subquery, quantifier
from noria.sql.text.trees import aggregates, has


# ------------------------------------------------------------------ as expressions
def subquery(block: Block, resolve: Resolver, node: exp.Expr) -> Expr:
    """The value of a subquery.  The same text in the same clause is planned once."""
    key = (resolve.clause, node.sql(dialect="mysql"))
    if key not in block.subqueries:
        beside = resolve.aggregates and (block.tree.args.get("group") is not None or aggregates(block.tree))
        within = replace(block, relations=_AroundGrouping(block)) if beside else block
        block.subqueries[key] = _planned(within, resolve, node)
    return block.subqueries[key]


@dataclass
class _AroundGrouping:
    """Joins subqueries of the select list, HAVING and ORDER BY of a block that aggregates.  They are joined above the
    grouping if they compare an aggregate or there is no GROUP BY, else below it."""

    block: Block

    def join(self, unit: JoinedPlan, left: bool, on: list[Expr]) -> None:
        if self.block.tree.args.get("group") is None or any(map(uses_aggregate, on)):
            self.block.above.append((unit, on))
        else:
            self.block.relations.join(unit, left, on)


def _planned(block: Block, resolve: Resolver, node: exp.Expr) -> Expr:
    if isinstance(node, exp.Exists):
        if (having := having_of_one(node.this)) is not None:
            return call("coalesce", call("and", scalar(block, exp.Subquery(this=having))), Const(BOOL, False, False))
        return _is_matched(block, [], query_of(block, _bare(node.this)))
    if isinstance(node, exp.Subquery):
        return scalar(block, node)
    if is_row_subquery(node):
        return row_compared(block, resolve, node)
    if (quantified := quantifier(node)) is not None and quantified not in (("eq", exp.Any), ("ne", exp.All)):
        return compared(block, resolve, node, *quantified)
    if isinstance(node, exp.NEQ):
        return call("not", _member(block, resolve, node))
    return _member(block, resolve, node)


def holds(block: Block, resolve: Resolver, node: exp.Expr, top: bool) -> Expr:
    """The condition of a membership that is a term of WHERE, where unknown equals false.  `top`: the subquery's
    parameters may become keys of the block."""
    if isinstance(node, exp.Exists):
        if having_of_one(node.this) is not None:
            return _planned(block, resolve, node)
        return _is_matched(block, [], _liftable(block, _bare(node.this), top))
    tree = tree_of(node)
    return _is_matched(block, operands_of(resolve, node), _liftable(block, tree, top))


def _bare(tree: exp.Expr) -> exp.Expr:
    """The query without the parts that EXISTS ignores: its columns, its order, a LIMIT above 0."""
    if not isinstance(tree, exp.Select):
        return tree
    tree = tree.copy()
    limit = tree.args.get("limit")
    if tree.args.get("offset") is None and (limit is None or limit.expression.name.strip("0")):
        tree.set("limit", None)
        tree.set("order", None)
    if tree.args.get("group") is None and not any(has(e, exp.AggFunc) for e in tree.expressions):
        tree.set("expressions", [exp.Literal.number(1)])
        tree.set("distinct", None)
    return tree


def _liftable(block: Block, tree: exp.Expr, top: bool) -> PlannedQuery:
    """Plan the query with its parameters as keys, if each lookup then finds a row of the block at most once.  Else
    plan it without keys."""
    if top and not block.context.batch:
        query = query_of(block, tree, top=True)
        if query.after is None and query.empty_row is None and not any(k.lookup.several for k in query.keys):
            return query
    return query_of(block, tree)


def _is_matched(block: Block, operands: list[Expr], query: PlannedQuery) -> Expr:
    """The condition that the query has a row whose columns equal the operands, for a row of the block."""
    if query.limit is not None or query.offset is not None:
        raise refuse("LIMIT in a subquery here", block.tree, "join with a derived table")
    check_width(operands or [literal(1)] * query.visible, query)
    if query.empty_row is not None and not operands:
        return literal(True)  # an aggregate without GROUP BY always has a row
    if query.empty_row is not None:  # one row for each row of the block
        return call("and", *(call("eq", o, v) for o, v in zip(operands, value_of(block, query), strict=True)))
    plan = query.plan
    pairs = [JoinPair(o, col_of(plan, i)).of_one_type() for i, o in enumerate(operands)]
    pairs += [JoinPair(c.outer, col_of(plan, c.column), c.null_safe) for c in query.correlations]
    found = [p.right for p in pairs] + [col_of(plan, k.column) for k in query.keys]
    once: Mir = Distinct(columns(plan, found or [literal(1)]))
    source = joined(block, columns(once, [*cols_of(once), literal(1)]), pairs, query)
    block.keys += [Key(k.lookup, source.column(len(pairs) + i)) for i, k in enumerate(query.keys)]
    return call("not", call("is_null", source.column(source.plan.width - 1)))


def _perhaps(node: exp.Expr, tree: exp.Expr, operands: list[Expr]) -> exp.Expr:
    """The query of the rows that equal the operands if each NULL stands for the right value:

        (a, b) IN (SELECT c, d FROM u)    SELECT 1 FROM u WHERE (c = a OR c IS NULL OR a IS NULL) AND (d = b OR …)
    """
    if not isinstance(tree, exp.Select) or any(tree.args.get(n) for n in ("group", "having", "with_")) or any(
            has(e, exp.AggFunc, exp.Window, exp.Star) for e in tree.expressions):
        raise refuse("IN of several columns that can be NULL, over such a query, elsewhere than as a term of WHERE",
                     node, "use EXISTS (SELECT … WHERE …)")
    tree = tree.copy()
    for operand, item in zip(operands, tree.expressions, strict=True):
        of_block, column = known(operand), item.unalias()
        nulls = (exp.Is(this=e.copy(), expression=exp.null()) for e in (column, of_block))
        either = exp.or_(exp.EQ(this=column.copy(), expression=of_block), *nulls)
        tree.where(either, copy=False)
    return _bare(tree)


def _member(block: Block, resolve: Resolver, node: exp.Expr) -> Expr:
    """The value of x IN (SELECT y …): true, false or NULL."""
    query, operands = query_of(block, tree_of(node)), operands_of(resolve, node)
    matched = _is_matched(block, operands, query)
    unsure = [e for i, o in enumerate(operands) for e in (o, col_of(query.plan, i)) if e.nullable]
    if not unsure or query.empty_row is not None:
        return matched
    if len(operands) > 1:
        perhaps = _is_matched(block, [], query_of(block, _perhaps(node, tree_of(node), operands)))
        return call("or", matched, call("and", perhaps, Const(BOOL, True, None)))
    keys = query.correlations
    known = columns(query.plan, [*(col_of(query.plan, k.column) for k in keys), col_of(query.plan, 0)])
    counts = (agg("count_star", None, known.fields), agg("count", len(keys), known.fields))
    groups = Aggregate(known, tuple(range(len(keys))), counts, ("rows", "values"))
    rows, values = col_of(groups, len(keys)), col_of(groups, len(keys) + 1)
    flags = [call("gt", rows, literal(0)), call("gt", rows, values)]
    said = Distinct(columns(groups, [*cols_of(groups)[: len(keys)], *flags]))  # changes less often than the counts
    pairs = [JoinPair(c.outer, col_of(said, i), c.null_safe) for i, c in enumerate(keys)]
    source = joined(block, said, pairs, query)
    some, nulls = (call("coalesce", source.column(len(keys) + i), Const(BOOL, False, False)) for i in (0, 1))
    unknown = call("or", call("is_null", operands[0]), nulls)
    return call("or", matched, call("and", some, unknown, Const(BOOL, True, None)))
