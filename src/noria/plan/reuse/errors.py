"""Finds the columns of a plan that may hold errors.  A view must not report errors of rows that it does not show."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from noria.core.expressions.functions.failing import aggregate_can_fail, can_fail
from noria.core.limits import KEPT_PLANS
from noria.plan.constant_row import GivenRows, Nothing
from noria.plan.mir import Aggregate, Base, Distinct, Filter, Join, Mir, Project, TopK, UnionAll


@lru_cache(maxsize=KEPT_PLANS)
def errorless(plan: Mir) -> tuple[bool, ...]:
    """For each column, whether no row can hold an error in it, of its own or of a condition below."""
    if isinstance(plan, Base | Nothing | GivenRows):
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
        sums = (a.column is not None and aggregate_can_fail(a.function, plan.input.fields[a.column].type)
                for a in plan.aggs)
        return (*(True for _ in plan.group), *(not fails for fails in sums))
    return (False,) * plan.width


def _shaky(sure: tuple[bool, ...]) -> Callable[[int], bool]:
    return lambda index: not sure[index]
