"""Takes a view's plan apart, so that views of the same rows can be recognised though they are written differently.

    project #0, #2 (join on #0 = #0 (filter a (x), y))
        source x and y joined, whichever is left; terms {a}, exprs (#0, #2)

Keeps true: a plan that is made from the parts has the same rows, because filters and projections commute with the
nodes of the source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from noria.core.expressions.expr import Col, Expr, composed, conjuncts, substitute
from noria.plan.columns import cols_of
from noria.plan.mir import Filter, Join, Mir, Project, TopK
from noria.plan.optimizer.rewrites import without_copy
from noria.plan.reuse.joins.join_order import joined
from noria.plan.reuse.memo import memoized


@dataclass(frozen=True)
class SelectProject:
    """A plan's parts.  `source`: the plan below filters and projections.  `terms` and `exprs` refer to its columns."""

    source: Mir
    terms: frozenset[Expr]
    exprs: tuple[Expr, ...]


@memoized
def rows_of(plan: Mir) -> SelectProject:
    """Take the plan apart."""
    rows = _apart(plan)
    order = joined(rows.source)
    if order is None:
        return rows
    terms, exprs = (tuple(substitute(e, lambda c: Col(c.type, c.nullable, order.place[c.index])) for e in some)
                    for some in (rows.terms, rows.exprs))
    return SelectProject(order.joined, frozenset(terms), exprs)


def _apart(plan: Mir) -> SelectProject:
    if isinstance(plan, Project):
        below = _apart(plan.input)
        return replace(below, exprs=tuple(composed(e, below.exprs) for e in plan.exprs))
    if isinstance(plan, Filter):
        below = _apart(plan.input)
        return replace(below, terms=below.terms.union(composed(t, below.exprs) for t in conjuncts(plan.predicate)))
    if isinstance(plan, Join):
        return _of_join(plan)
    if isinstance(plan, TopK):  # its input may be a copy that only renames columns, as in a view
        return _as_it_is(plan.with_inputs(without_copy(plan.input)))
    return _as_it_is(plan)


def _as_it_is(plan: Mir) -> SelectProject:
    return SelectProject(plan, frozenset(), cols_of(plan))


def _of_join(plan: Join) -> SelectProject:
    """Take a join apart.  Conditions of its sides become conditions of the join, except those of a LEFT JOIN's right
    side."""
    left, right = _apart(plan.left), _apart(plan.right)
    if right.exprs != _as_it_is(right.source).exprs or (plan.outer and right.terms):
        right = _as_it_is(plan.right)
    if left.exprs != _as_it_is(left.source).exprs:
        left = _as_it_is(plan.left)
    width = left.source.width
    source = plan.with_inputs(left.source, right.source)
    moved = (substitute(t, lambda c: Col(c.type, c.nullable, c.index + width)) for t in right.terms)
    return replace(_as_it_is(source), terms=left.terms.union(moved))
