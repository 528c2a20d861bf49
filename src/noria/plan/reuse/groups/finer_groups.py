"""Computes coarser groups from finer ones, if both states are full.

    aggregate count(*) by a, b (x)      →   the same
    aggregate count(*) by a (x)         →   project a, cast(sum(n)) (aggregate sum(n) by a (aggregate … by a, b))

The coarser state stays as large, but it is built from groups, and receives changes of groups instead of rows.  Partial
states are not rewritten: one key of the coarser would fill all its finer groups.  Only COUNT, MIN and MAX, whose parts
cannot fail unless the complete group does.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import call, cast, literal
from noria.core.types import BIGINT
from noria.plan.mir import Aggregate, Mir, Project, agg
from noria.plan.reuse.groups.grouped import GroupingParts, column

_PARTS = {"count_star": "sum", "count": "sum", "min": "min", "max": "max"}


def finer_groups(members: Sequence[GroupingParts], standing: Sequence[GroupingParts]) -> dict[Mir, Mir]:
    made: dict[Mir, Mir] = {}
    known = [g for g in (*members, *standing) if g.full and isinstance(g.plan, Aggregate)]
    for m in sorted(members, key=lambda m: -len(m.group)):  # finer ones first: coarser ones read their rewritten form
        if not m.full or any(a.function not in _PARTS for a in m.aggs) or not m.aggs:
            continue
        finer = [f for f in known if (f.source, f.terms) == (m.source, m.terms) and m.groups < f.groups
                 and set(m.aggs) <= set(f.aggs)]
        if finer:
            best = min(finer, key=lambda f: (len(f.group), len(f.aggs), f.group, str(f.plan)))
            made[m.plan] = _of(best, made.get(best.plan, best.plan), m)
    return made


def _of(finer: GroupingParts, below: Mir, m: GroupingParts) -> Mir:
    """Compute `m` from the finer grouping.  `below`: the plan that replaces it, with the same columns."""
    parts = tuple(agg(_PARTS[a.function], len(finer.group) + finer.aggs.index(a), below.fields) for a in m.aggs)
    names = tuple(f.name for f in m.plan.fields)
    coarser = Aggregate(below, tuple(finer.group.index(c) for c in m.group), parts, names[len(m.group):])
    exprs: list[Expr] = [column(coarser, i) for i in range(coarser.width)]
    for i, a in enumerate(m.aggs, len(m.group)):
        if a.function in ("count", "count_star"):
            exprs[i] = call("coalesce", cast(exprs[i], BIGINT), literal(0))  # the sum over no groups is NULL
    return Project(coarser, tuple(exprs), names)
