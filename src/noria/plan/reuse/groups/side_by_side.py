"""Merges aggregates of the same groups into one state.

    aggregate count(*) by story (comments)      →   project story, count(*)   ┐
    aggregate max(at) by story (comments)       →   project story, max(at)    ┴ aggregate count(*), max(at) by story

The groupings may be written over other columns, or with conditions and groups in another order.  A grouping reads an
existing state that has all its aggregates: one of a view in use, or one that is full for other views.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from noria.core.limits import SHARED_AGGREGATES
from noria.plan.mir import Aggregate, Mir
from noria.plan.reuse.groups.grouped import GroupingParts, aggregate, conditioned, grouped, shown


def side_by_side(members: Sequence[GroupingParts], standing: Sequence[GroupingParts]) -> dict[Mir, Mir]:
    same = defaultdict[object, list[GroupingParts]](list)
    for m in members:
        same[m.source, m.terms, m.groups].append(m)
    hosts = defaultdict[object, list[GroupingParts]](list)
    for h in standing:
        hosts[h.source, h.terms, h.groups].append(h)
    made: dict[Mir, Mir] = {}
    for which, group in same.items():
        there = hosts[which]
        for full in (True, False):
            free = [m for m in group if m.full is full and not _on_one_of(there, m, made)]
            if (merged := _together(free, made)) is not None and full:
                there = [*there, merged]
    return made


def _together(free: Sequence[GroupingParts], made: dict[Mir, Mir]) -> GroupingParts | None:
    """Merge these into one state.  Returns it, or None if nothing was merged; a single member is returned as it is."""
    aggs = {a for m in free for a in m.aggs}
    if len(free) < 2 or len(aggs) > SHARED_AGGREGATES:
        return free[0] if len(free) == 1 else None
    first = free[0]
    merged = aggregate(conditioned(first.source, first.terms), first.group, aggs)
    made.update({m.plan: _of(merged, m) for m in free if m.plan != merged})
    return replace(first, plan=merged, group=merged.group, aggs=merged.aggs)


def _on_one_of(hosts: Sequence[GroupingParts], m: GroupingParts, made: dict[Mir, Mir]) -> bool:
    """Whether a state has all its aggregates, and is full if it must be; then rewrite the grouping to read it."""
    for h in sorted(hosts, key=lambda h: (not h.full, len(h.aggs), str(h.plan))):
        if set(m.aggs) <= set(h.aggs) and isinstance(h.plan, Aggregate) and h.full >= m.full:
            if m.plan != h.plan:
                made[m.plan] = _of(h.plan, m)
            return True
    return False


def _of(merged: Aggregate, m: GroupingParts) -> Mir:
    """Project the member's columns from the merged groups."""
    known = grouped(merged)
    assert known is not None
    places = [known.group.index(c) for c in m.group] + [len(known.group) + known.aggs.index(a) for a in m.aggs]
    return shown(merged, places, m.plan)
