"""Replaces nodes of a plan by nodes whose columns have other positions, and adapts the nodes above.

    project #1 (x)      →   project #2 (y), where y replaces x and has x's column 1 as its column 2

Projections and groupings accept columns in any order; filters pass them on.  The inputs of a join keep their columns,
so a caller replaces a chain of joins as a unit.  Keeps true: a plan has the same rows in the same columns, and no node
is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from noria.core.expressions.expr import Col, Expr, substitute
from noria.plan.mir import Aggregate, Filter, Join, Mir, Project
from noria.plan.reuse.joins.chains import chain

Moved = tuple[Mir, Mapping[int, int]]
"""What stands for a node, and where in that its columns are."""


class NodeReplacement:
    """Rewrites plans.  `new`: the replacements, used below nodes that accept columns in any order."""

    def __init__(self, new: Mapping[Mir, Moved]):
        self._new = new
        self._done: dict[Mir, Mir] = {}
        self._concerned: dict[Mir, bool] = {}

    def of(self, plan: Mir) -> Mir:
        """The rewritten plan, with the same columns."""
        if not self.concerns(plan):
            return plan
        if plan not in self._done:
            self._done[plan] = self._made(plan)
        return self._done[plan]

    def concerns(self, plan: Mir) -> bool:
        """Whether the plan contains a replaced node."""
        if plan not in self._concerned:
            self._concerned[plan] = plan in self._new or any(map(self.concerns, plan.inputs))
        return self._concerned[plan]

    def instead(self) -> dict[Mir, Mir]:
        """The nodes above replaced ones that were rewritten so far, with their new forms."""
        return {m: p for m, p in self._done.items() if p != m}

    def _made(self, plan: Mir) -> Mir:
        if isinstance(plan, Join):
            c = chain(plan)
            at = self.of(c.relations[0])
            for join in c.joins:
                at = join.with_inputs(at, self.of(join.right))
            return at
        if isinstance(plan, Project):
            below, place = self._moved(plan.input)
            return replace(plan, input=below, exprs=tuple(at_places(e, place) for e in plan.exprs))
        if isinstance(plan, Aggregate):
            below, place = self._moved(plan.input)
            if place is None:
                return replace(plan, input=below)
            aggs = tuple(a if a.column is None else replace(a, column=place[a.column]) for a in plan.aggs)
            return replace(plan, input=below, group=tuple(place[c] for c in plan.group), aggs=aggs)
        return plan.with_inputs(*map(self.of, plan.inputs))

    def _moved(self, plan: Mir) -> tuple[Mir, Mapping[int, int] | None]:
        """The rewritten plan, and the new positions of its columns (None: unchanged)."""
        if plan in self._new:
            return self._new[plan]
        if isinstance(plan, Filter):
            below, place = self._moved(plan.input)
            return Filter(below, at_places(plan.predicate, place)), place
        return self.of(plan), None


def at_places(e: Expr, place: Mapping[int, int] | None) -> Expr:
    """The expression over columns at their new positions."""
    return e if place is None else substitute(e, lambda c: Col(c.type, c.nullable, place[c.index]))
