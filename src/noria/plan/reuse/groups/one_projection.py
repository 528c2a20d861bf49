"""Merges the projections below groupings of the same rows into one that computes the values of all.

    aggregate sum(v) by a (project a, x + y as v (t))       →   the same over  project a, x + y, x * 2 (t)
    aggregate max(v) by a (project a, x * 2 as v (t))       →   the same over  project a, x + y, x * 2 (t)

Then `side_by_side.py` can merge the aggregates into one state.  Refused if these are more than SHARED_AGGREGATES.  If a
state in use has all aggregates of a grouping, the grouping reads that state's projection instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from noria.core.expressions.expr import Col, Expr, columns_of
from noria.core.limits import SHARED_AGGREGATES
from noria.plan.mir import Mir, Project
from noria.plan.reuse.groups.grouped import (
    GroupingParts,
    SourceGrouping,
    column,
    conditioned,
    moved,
    parts_of,
)


def one_projection(members: Sequence[GroupingParts], standing: Sequence[GroupingParts]) -> dict[Mir, Mir]:
    there, free = _alike(standing), _alike(members)
    made: dict[Mir, Mir] = {}
    for which, group in free.items():
        hosts = there.get(which, [])
        left = [(m, c) for m, c in group if not _over_one_of(hosts, m, c, made)]
        if len({m.source for m, _ in left}) > 1 and sum(len(m.aggs) for m, _ in left) <= SHARED_AGGREGATES:
            made.update(_over_one(left))
    return made


def _alike(groupings: Sequence[GroupingParts]) -> dict[object, list[tuple[GroupingParts, SourceGrouping]]]:
    found = defaultdict[object, list[tuple[GroupingParts, SourceGrouping]]](list)
    for g in groupings:
        c = parts_of(g)
        found[c.source, frozenset(c.terms), c.group, g.full].append((g, c))
    return found


def _over_one_of(hosts: Sequence[tuple[GroupingParts, SourceGrouping]], m: GroupingParts, c: SourceGrouping,
                 made: dict[Mir, Mir]) -> bool:
    """Whether a state in use has all aggregates of the grouping; then rewrite the grouping over its projection."""
    for h, other in sorted(hosts, key=lambda host: str(host[0].plan)):
        if c.aggs <= other.aggs:
            if h.source != m.source:
                place = {e: i for i, e in enumerate(other.exprs)}
                made[m.plan] = _placed(m, c, conditioned(h.source, h.terms), place)
            return True
    return False


def _over_one(group: Sequence[tuple[GroupingParts, SourceGrouping]]) -> dict[Mir, Mir]:
    first = group[0][1]
    exprs = sorted(frozenset[Expr]().union(*(c.group | c.values for _, c in group)), key=order)
    exprs = exprs or [column(first.source, 0)]
    below = Project(conditioned(first.source, first.terms), tuple(exprs), tuple(_name(e, first.source) for e in exprs))
    place = {e: i for i, e in enumerate(exprs)}
    return {m.plan: _placed(m, c, below, place) for m, c in group}


def _placed(m: GroupingParts, c: SourceGrouping, below: Mir, place: Mapping[Expr, int]) -> Mir:
    return moved(m, below, [place.get(e, -1) for e in c.exprs])


def order(e: Expr) -> tuple[int, int, str]:
    """The sort key of projected values: columns first, by position."""
    return (0, e.index, "") if isinstance(e, Col) else (1, min(columns_of(e), default=0), str(e))


def _name(e: Expr, source: Mir) -> str:
    return source.fields[e.index].name if isinstance(e, Col) else str(e)
