"""Keys that the rows of a plan have."""

from __future__ import annotations

from noria.core.expressions.expr import Col
from noria.plan.constant_row import Nothing
from noria.plan.mir import Aggregate, Base, Distinct, Filter, Join, Mir, Project


def unique_keys(plan: Mir) -> list[frozenset[int]]:
    """Sets of columns in which no two rows have equal values (NULL equals NULL)."""
    if isinstance(plan, Base):
        return [frozenset(plan.table.primary_key)] if plan.table.primary_key else []
    if isinstance(plan, Nothing):
        return [frozenset()]
    if isinstance(plan, Aggregate):
        return [frozenset(range(len(plan.group)))]
    if isinstance(plan, Distinct):
        return [frozenset(range(plan.width)), *unique_keys(plan.input)]
    if isinstance(plan, Filter):
        return unique_keys(plan.input)
    if isinstance(plan, Project):
        place = {e.index: i for i, e in enumerate(plan.exprs) if isinstance(e, Col)}
        return [frozenset(place[c] for c in key) for key in unique_keys(plan.input) if key <= place.keys()]
    if isinstance(plan, Join) and any(key <= {b for _, b in plan.on} for key in unique_keys(plan.right)):
        return unique_keys(plan.left)  # at most one right row for each left one
    return []
