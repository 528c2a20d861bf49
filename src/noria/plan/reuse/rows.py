"""The rows of a view taken apart, so that views that are written differently can be seen to be of the same rows.

    project #0, #2 (join on #0 = #0 (filter a (x), y))
        source join on #0 = #0 (x, y), terms {a}, exprs (#0, #2)

Keeps true: the same rows, whichever way they are put together again: filtering and projecting commute with what stands
below them in the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from noria.core.expressions.expr import Col, Expr, conjuncts, substitute
from noria.core.expressions.functions.failing import can_fail, sum_can_fail
from noria.core.limits import KEPT_PLANS
from noria.plan.mir import Aggregate, Base, Distinct, Filter, Join, Mir, Project, TopK, UnionAll


@dataclass(frozen=True)
class Rows:
    """source: what is below filters and projections; terms and exprs are over its columns."""

    source: Mir
    terms: frozenset[Expr]
    exprs: tuple[Expr, ...]


@lru_cache(maxsize=KEPT_PLANS)
def rows_of(plan: Mir) -> Rows:
    """The plan taken apart."""
    if isinstance(plan, Project):
        below = rows_of(plan.input)
        return replace(below, exprs=tuple(_over(e, below) for e in plan.exprs))
    if isinstance(plan, Filter):
        below = rows_of(plan.input)
        return replace(below, terms=below.terms.union(_over(t, below) for t in conjuncts(plan.predicate)))
    if isinstance(plan, Join):
        return _of_join(plan)
    return _as_it_is(plan)


def _as_it_is(plan: Mir) -> Rows:
    return Rows(plan, frozenset(), tuple(Col(f.type, f.nullable, i) for i, f in enumerate(plan.fields)))


def _of_join(plan: Join) -> Rows:
    """Conditions of a side are conditions of the whole, but for those of the right side of a LEFT JOIN."""
    left, right = rows_of(plan.left), rows_of(plan.right)
    if right.exprs != _as_it_is(right.source).exprs or (plan.outer and right.terms):
        right = _as_it_is(plan.right)
    if left.exprs != _as_it_is(left.source).exprs:
        left = _as_it_is(plan.left)
    width = left.source.width
    source = plan.with_inputs(left.source, right.source)
    moved = (substitute(t, lambda c: Col(c.type, c.nullable, c.index + width)) for t in right.terms)
    return replace(_as_it_is(source), terms=left.terms.union(moved))


def _over(e: Expr, below: Rows) -> Expr:
    return substitute(e, lambda c: below.exprs[c.index])


# ---------------------------------------------------------------- errors
@lru_cache(maxsize=KEPT_PLANS)
def errorless(plan: Mir) -> tuple[bool, ...]:
    """Of each column: can no row hold an error in it, of its own or of a condition below?"""
    if isinstance(plan, Base):
        return (True,) * plan.width
    below = tuple(errorless(i) for i in plan.inputs)
    if isinstance(plan, Filter):
        return below[0] if not can_fail(plan.predicate, _shaky(below[0])) else (False,) * plan.width
    if isinstance(plan, Project):
        return tuple(not can_fail(e, _shaky(below[0])) for e in plan.exprs)
    if isinstance(plan, Join):
        both = below[0] + below[1]
        sure = plan.residual is None or not can_fail(plan.residual, _shaky(both))
        return both if sure and all(below[0][a] and below[1][b] for a, b in plan.on) else (False,) * plan.width
    if isinstance(plan, UnionAll):
        return tuple(map(all, zip(*below, strict=True)))
    if isinstance(plan, Distinct | TopK):
        return below[0] if all(below[0]) else (False,) * plan.width
    if isinstance(plan, Aggregate) and all(below[0]):
        sums = (a.function in ("sum", "avg") and a.column is not None
                and sum_can_fail(plan.input.fields[a.column].type) for a in plan.aggs)
        return (*(True for _ in plan.group), *(not fails for fails in sums))
    return (False,) * plan.width


def _shaky(sure: tuple[bool, ...]) -> Callable[[int], bool]:
    return lambda index: not sure[index]
