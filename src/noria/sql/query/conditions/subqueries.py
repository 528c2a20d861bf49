"""Plans subqueries in expressions as LEFT JOINs of their block (section 5.1).

    EXISTS (SELECT … WHERE u.a = t.a)    t ⟕ distinct u.a, 1;  the join's mark is not NULL
    x IN (SELECT y …)                    t ⟕ distinct y, 1 on x = y;  as a term of WHERE it becomes an inner join
    x NOT IN (SELECT y …)                … and ⟕ COUNT(*), COUNT(y): unknown if there are rows, and x or some y is NULL
    (SELECT MAX(c) … WHERE u.a = t.a)    t ⟕ max(c) by u.a; over no rows, the aggregate's value over nothing
    (SELECT c … ORDER BY d LIMIT 1)      t ⟕ the first row by u.a

    (… WHERE u.a = t.a AND u.b > t.b)    the inner query joins distinct t.a, t.b; the block then matches these with t

Keeps true: a joined subquery has at most one row for each row of the block, so no row is duplicated.  Its columns are
determined by the outer columns that it is joined on.  An inner query may use outer columns in its WHERE only.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError
from noria.core.errors.codes import OPERAND_COLUMNS
from noria.core.expressions.expr import Call, Col, Const, Expr, columns_of, substitute
from noria.core.expressions.functions import call, literal
from noria.core.types import BOOL
from noria.plan.columns import col_of, cols_of
from noria.plan.lookups import Key, NullSafe
from noria.plan.mir import Aggregate, Distinct, Mir, Project, TopK, agg
from noria.sql.expressions.scalars import Resolver
from noria.sql.query.relations.block import Block
from noria.sql.query.relations.joins import EQUALITIES, JoinPair, unit_of
from noria.sql.query.relations.limit_offset import limits_of
from noria.sql.query.relations.planned import Correlation, PlannedQuery
from noria.sql.query.relations.scope import ScopeRelation
from noria.sql.text.refusals import not_maintained, refuse
from noria.sql.text.trees import has

CORRELATED = "compare its columns with those of one table of the outer query in its WHERE"


def correlation(term: Expr, start: int) -> Correlation[Expr] | None:
    """Read a term as a correlation; None if it is not one.  Columns below number `start` are the outer query's."""
    if not isinstance(term, Call) or term.op not in EQUALITIES:
        return None
    for outer, inner in (term.args, term.args[::-1]):
        columns = columns_of(inner)
        if columns and min(columns) >= start and columns_of(outer) and max(columns_of(outer)) < start:
            pair = JoinPair(outer, inner).of_one_type()
            return Correlation(pair.left, pair.right, term.op == "nseq")
    return None


def add_domain(block: Block) -> None:
    """Let terms of WHERE that are not correlations use outer columns.

    Joins the distinct values of the outer columns to the block, and rewrites the terms to them.  The block is then
    correlated by these values alone.
    """
    start, outer = block.scope.start, block.outer
    terms = [t for t in block.where if any(c < start for c in columns_of(t))]
    if outer is None or not terms:
        return
    known = sorted({c for e in (*terms, *(k.outer for k in block.correlations)) for c in columns_of(e) if c < start})
    of = {outer.source_of(c) for c in known} if known[0] >= outer.start else set()
    source = outer.sources[of.pop()] if len(of) == 1 else None
    if source is None or source.outer or source.determined_by is not None:
        return  # `_check_outer` raises the error
    values = Distinct(_columns(source.plan, [col_of(source.plan, c - source.offset) for c in known]))
    own = block.scope.domain(values)
    block.relations.join(unit_of(own), False, [])

    def inside(e: Expr) -> Expr:
        return substitute(e, lambda c: own.column(known.index(c.index)) if c.index < start else c)

    block.where = [inside(t) for t in block.where]
    block.where += [call("nseq" if c.null_safe else "eq", inside(c.outer), c.column) for c in block.correlations]
    values_of = [own.column(i) for i in range(len(known))]
    block.correlations = [Correlation(Col(v.type, v.nullable, number), v, True)
                          for number, v in zip(known, values_of, strict=True)]


def null_safe(bound: Key[Expr] | Correlation[Expr]) -> bool:
    """Whether the column can be looked up by NULL."""
    return bound.null_safe if isinstance(bound, Correlation) else isinstance(bound.lookup, NullSafe)


# ------------------------------------------------------------------ as expressions
def subquery(block: Block, resolve: Resolver, node: exp.Expr) -> Expr:
    """The value of a subquery.  The same text in the same clause is planned once."""
    key = (resolve.clause, node.sql(dialect="mysql"))
    if key not in block.subqueries:
        block.subqueries[key] = _planned(block, resolve, node)
    return block.subqueries[key]


def _planned(block: Block, resolve: Resolver, node: exp.Expr) -> Expr:
    if isinstance(node, exp.Exists):
        return _is_matched(block, [], _query(block, _bare(node.this)))
    if isinstance(node, exp.Subquery):
        return _scalar(block, node)
    if isinstance(node, exp.NEQ):
        return call("not", _member(block, resolve, node))
    return _member(block, resolve, node)


def holds(block: Block, resolve: Resolver, node: exp.Expr, top: bool) -> Expr:
    """The condition of a membership that is a term of WHERE, where unknown equals false.  `top`: the subquery's
    parameters may become keys of the block."""
    if isinstance(node, exp.Exists):
        return _is_matched(block, [], _liftable(block, _bare(node.this), top))
    tree = _tree(node)
    return _is_matched(block, _operands(resolve, node), _liftable(block, tree, top))


def _tree(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.args["query"] if isinstance(node, exp.In) else node.expression.this
    if isinstance(inner, exp.Subquery):
        inner = inner.this
    if inner.args.get("limit") is not None:
        raise refuse("LIMIT in IN (SELECT …)", node, "join with a derived table")
    return inner


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


def _operands(resolve: Resolver, node: exp.Expr) -> list[Expr]:
    nodes = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    return [resolve(n) for n in nodes]


# ------------------------------------------------------------------ inner queries
def _query(block: Block, tree: exp.Expr, top: bool = False) -> PlannedQuery:
    query = (block.context if top else block.context.inner()).query(tree, top, block.scope)
    if query.after is not None and not top:
        raise not_maintained("HAVING in a subquery that aggregates without GROUP BY", tree)
    start = block.scope.start
    if any(c < start for k in query.correlations for c in columns_of(k.outer)) or any(
            c < start for t in query.outer_terms for c in columns_of(t)):
        raise refuse("a subquery that knows columns of more than the next query", tree)
    return query


def _liftable(block: Block, tree: exp.Expr, top: bool) -> PlannedQuery:
    """Plan the query with its parameters as keys, if each lookup then finds a row of the block at most once.  Else
    plan it without keys."""
    if top and not block.context.batch:
        query = _query(block, tree, top=True)
        if query.after is None and query.empty_row is None and not any(k.lookup.several for k in query.keys):
            return query
    return _query(block, tree)


def _is_matched(block: Block, operands: list[Expr], query: PlannedQuery) -> Expr:
    """The condition that the query has a row whose columns equal the operands, for a row of the block."""
    if query.limit is not None or query.offset is not None:
        raise refuse("LIMIT in a subquery here", block.tree, "join with a derived table")
    _check_width(operands or [literal(1)] * query.visible, query)
    if query.empty_row is not None and not operands:
        return literal(True)  # an aggregate without GROUP BY always has a row
    if query.empty_row is not None:
        raise refuse("IN over a correlated aggregate without GROUP BY", block.tree, "compare by `=`")
    plan = query.plan
    pairs = [JoinPair(o, col_of(plan, i)).of_one_type() for i, o in enumerate(operands)]
    pairs += [JoinPair(c.outer, col_of(plan, c.column), c.null_safe) for c in query.correlations]
    found = [p.right for p in pairs] + [col_of(plan, k.column) for k in query.keys]
    once: Mir = Distinct(_columns(plan, found or [literal(1)]))
    source = _joined(block, _columns(once, [*cols_of(once), literal(1)]), pairs, query)
    block.keys += [Key(k.lookup, source.column(len(pairs) + i)) for i, k in enumerate(query.keys)]
    return call("not", call("is_null", source.column(source.plan.width - 1)))


def _member(block: Block, resolve: Resolver, node: exp.Expr) -> Expr:
    """The value of x IN (SELECT y …): true, false or NULL."""
    query, operands = _query(block, _tree(node)), _operands(resolve, node)
    matched = _is_matched(block, operands, query)
    unsure = [e for i, o in enumerate(operands) for e in (o, col_of(query.plan, i)) if e.nullable]
    if not unsure:
        return matched
    if len(operands) > 1:
        raise refuse("IN of several columns that can be NULL, elsewhere than as a term of WHERE", node,
                     "use EXISTS (SELECT … WHERE …)")
    keys = query.correlations
    known = _columns(query.plan, [*(col_of(query.plan, k.column) for k in keys), col_of(query.plan, 0)])
    counts = (agg("count_star", None, known.fields), agg("count", len(keys), known.fields))
    groups = Aggregate(known, tuple(range(len(keys))), counts, ("rows", "values"))
    rows, values = col_of(groups, len(keys)), col_of(groups, len(keys) + 1)
    flags = [call("gt", rows, literal(0)), call("gt", rows, values)]
    said = Distinct(_columns(groups, [*cols_of(groups)[: len(keys)], *flags]))  # changes less often than the counts
    pairs = [JoinPair(c.outer, col_of(said, i), c.null_safe) for i, c in enumerate(keys)]
    source = _joined(block, said, pairs, query)
    some, nulls = (call("coalesce", source.column(len(keys) + i), Const(BOOL, False, False)) for i in (0, 1))
    unknown = call("or", call("is_null", operands[0]), nulls)
    return call("or", matched, call("and", some, unknown, Const(BOOL, True, None)))


def _scalar(block: Block, node: exp.Subquery) -> Expr:
    """The value of a scalar subquery, NULL if it has no row.  Refuses one that may have several rows."""
    query = _query(block, node.this)
    _check_width([literal(1)], query)
    keys = query.correlations
    if query.limit is not None or query.offset is not None:
        query = _first(block, node, query, tuple(dict.fromkeys(k.column for k in keys)))
    if not query.single:
        raise refuse("a subquery that may have several rows where one value is asked for", node,
                     "aggregate it (MAX), compare a primary key in its WHERE, or give it a LIMIT 1")
    exprs = [*(col_of(query.plan, k.column) for k in keys), col_of(query.plan, 0), literal(1)]
    plan = _columns(query.plan, exprs)
    pairs = [JoinPair(c.outer, col_of(plan, i), c.null_safe) for i, c in enumerate(keys)]
    source = _joined(block, plan, pairs, query)
    value = source.column(len(keys))
    if query.empty_row is None or query.empty_row[0] is None:
        return value
    of_nothing = Const(value.type, False, query.empty_row[0])
    return call("if", call("is_null", source.column(len(keys) + 1)), of_nothing, value)


def _first(block: Block, node: exp.Expr, query: PlannedQuery, keys: tuple[int, ...]) -> PlannedQuery:
    """Apply the query's LIMIT 1 to each value of its keys."""
    limit, offset = limits_of(block.context.inner(), query)
    if query.single and limit and not offset:
        return replace(query, limit=None)
    if query.empty_row is not None or limit is None or limit > 1:
        raise refuse("LIMIT in a subquery here, unless it is LIMIT 1", node)
    plan = TopK(query.plan, keys, query.order, limit, offset)
    return replace(query, plan=plan, limit=None, offset=None, single=True)


def _check_width(operands: list[Expr], query: PlannedQuery) -> None:
    if len(operands) != query.visible:
        raise SqlError(*OPERAND_COLUMNS, f"Operand should contain {len(operands)} column(s)")


def _joined(block: Block, plan: Mir, pairs: list[JoinPair], query: PlannedQuery) -> ScopeRelation:
    """LEFT JOIN the plan to the block on the pairs, which are its first columns; no name refers to the relation."""
    determined_by = frozenset().union(*(columns_of(p.left) for p in pairs), *map(columns_of, query.outer_terms))
    source = block.scope.hide(plan, determined_by)
    on = [call("nseq" if p.null_safe else "eq", p.left, source.column(i)) for i, p in enumerate(pairs)]
    block.relations.join(unit_of(source), True, [*on, *query.outer_terms])
    return source


def _columns(plan: Mir, exprs: list[Expr]) -> Mir:
    return Project(plan, tuple(exprs), tuple(f"sub{i}" for i in range(len(exprs))))
