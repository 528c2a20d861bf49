"""What all subqueries share: an inner query is planned, and LEFT JOINed to its block.

    (… WHERE u.a = t.a AND u.b > t.b)    the inner query joins distinct t.a, t.b; the block then matches these with t

Keeps true: a joined subquery has at most one row for each row of the block, so no row is duplicated.  Its columns are
determined by the outer columns that it is joined on.  `outer_columns` lends outer columns to other clauses.
"""

from __future__ import annotations

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import OPERAND_COLUMNS
from noria.core.expressions.expr import Col, Expr, columns_of, substitute
from noria.core.expressions.functions import call
from noria.plan.columns import col_of
from noria.plan.lookups import Key, NullSafe
from noria.plan.mir import Distinct, Mir, Project
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.joins import JoinPair, is_equality, unit_of
from noria.sql.query.relations.planned import Correlation, PlannedQuery
from noria.sql.query.relations.scope import Scope, ScopeRelation
from noria.sql.text.refusals import not_maintained, refuse

CORRELATED = "compare its columns with those of tables that no outer join of the outer query extends"


def correlation(term: Expr, start: int) -> Correlation[Expr] | None:
    """Read a term as a correlation; None if it is not one.  Columns below number `start` are the outer query's."""
    if not is_equality(term):
        return None
    for outer, inner in (term.args, term.args[::-1]):
        columns = columns_of(inner)
        if columns and min(columns) >= start and columns_of(outer) and max(columns_of(outer)) < start:
            pair = JoinPair(outer, inner).of_one_type()
            return Correlation(pair.left, pair.right, term.op == "nseq")
    return None


def add_domain(block: Block) -> None:
    """Let terms of WHERE that are not correlations use outer columns.

    Rewrites the terms to the values of `join_domains`, which alone then correlate the block.
    """
    start, outer = block.scope.start, block.outer
    terms = [t for t in block.where if any(c < start for c in columns_of(t))]
    if outer is None or not terms:
        return
    known = {c for e in (*terms, *(k.outer for k in block.correlations)) for c in columns_of(e) if c < start}
    correlations, block.correlations = block.correlations, []
    own = join_domains(block, outer, known)
    if own is None:
        block.correlations = correlations
        return  # `_check_outer` raises the error

    def inside(e: Expr) -> Expr:
        return substitute(e, lambda c: own[c.index] if c.index < start else c)

    block.where = [inside(t) for t in block.where]
    block.where += [call("nseq" if c.null_safe else "eq", inside(c.outer), c.column) for c in correlations]


def join_domains(block: Block, outer: Scope, known: set[int]) -> dict[int, Col] | None:
    """Join the distinct values of outer columns to the block, and correlate it by these.  Returns the block's columns
    by the outer ones; None if an outer query's join NULL-extends one, or it is not a column of the next outer query."""
    if min(known) < outer.start:
        return None
    own: dict[int, Col] = {}
    for source in [outer.sources[n] for n in sorted({outer.source_of(c) for c in known})]:
        if source.outer or not (source.determined_by is None or outer.lends(source)):
            return None
        numbers = sorted(c for c in known if source.offset <= c < source.end)
        values = Distinct(columns(source.plan, [col_of(source.plan, c - source.offset) for c in numbers]))
        domain = block.scope.domain(values)
        block.relations.join(unit_of(domain), False, [])
        own |= {number: domain.column(i) for i, number in enumerate(numbers)}
    block.correlations += [Correlation(Col(v.type, v.nullable, number), v, True) for number, v in own.items()]
    return own


def null_safe(bound: Key[Expr] | Correlation[Expr]) -> bool:
    """Whether the column can be looked up by NULL."""
    return bound.null_safe if isinstance(bound, Correlation) else isinstance(bound.lookup, NullSafe)


# ------------------------------------------------------------------ planned and joined
def query_of(block: Block, tree: exp.Expr, top: bool = False) -> PlannedQuery:
    query = (block.context if top else block.context.inner()).query(tree, top, block.scope)
    if query.after is not None and not top:
        raise not_maintained("HAVING in a subquery that aggregates without GROUP BY", tree)
    start = block.scope.start
    if any(c < start for k in query.correlations for c in columns_of(k.outer)) or any(
            c < start for t in query.outer_terms for c in columns_of(t)):
        raise refuse("a subquery that knows columns of more than the next query", tree)
    return query


def tree_of(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.args["query"] if isinstance(node, exp.In) else node.expression.this
    if isinstance(inner, exp.Subquery):
        inner = inner.this
    if inner.args.get("limit") is not None:
        raise refuse("LIMIT in IN (SELECT …)", node, "join with a derived table")
    return inner


def operands_of(resolve: Resolver, node: exp.Expr) -> list[Expr]:
    nodes = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    return [resolve(n) for n in nodes]


def check_width(operands: list[Expr], query: PlannedQuery) -> None:
    if len(operands) != query.visible:
        raise SqlError(*OPERAND_COLUMNS, f"Operand should contain {len(operands)} column(s)")


def joined(block: Block, plan: Mir, pairs: list[JoinPair], query: PlannedQuery) -> ScopeRelation:
    """LEFT JOIN the plan to the block on the pairs, which are its first columns; no name refers to the relation."""
    determined_by = frozenset().union(*(columns_of(p.left) for p in pairs), *map(columns_of, query.outer_terms))
    source = block.scope.hide(plan, determined_by)
    on = [call("nseq" if p.null_safe else "eq", p.left, source.column(i)) for i, p in enumerate(pairs)]
    block.relations.join(unit_of(source), True, [*on, *query.outer_terms])
    return source


def columns(plan: Mir, exprs: list[Expr]) -> Mir:
    return Project(plan, tuple(exprs), tuple(f"sub{i}" for i in range(len(exprs))))
