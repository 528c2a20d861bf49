"""Aggregates of the same groups stand side by side in one state.

    aggregate count(*) by story (comments)      →   project story, count(*)   ┐
    aggregate max(at) by story (comments)       →   project story, max(at)    ┴ aggregate count(*), max(at) by story

The rows may be written with other columns, or their conditions and groups in another order.  A state that is there
anyway and has all the aggregates is taken as it is (fewer columns of a wider state): one of a view in use, or one that
is kept whole for the sake of others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from noria.core.limits import SHARED_AGGREGATES
from noria.plan.mir import Aggregate, Mir
from noria.plan.reuse.grouped import Grouped, aggregate, conditioned, grouped, shown


def side_by_side(members: Sequence[Grouped], standing: Sequence[Grouped]) -> dict[Mir, Mir]:
    same = defaultdict[object, list[Grouped]](list)
    for m in members:
        same[m.source, m.terms, m.groups].append(m)
    hosts = defaultdict[object, list[Grouped]](list)
    for h in standing:
        hosts[h.source, h.terms, h.groups].append(h)
    made: dict[Mir, Mir] = {}
    for which, group in same.items():
        there = hosts[which]
        for full in (True, False):
            free = [m for m in group if m.full is full and not _on_one_of(there, m, made)]
            if (whole := _together(free, made)) is not None and full:
                there = [*there, whole]
    return made


def _together(free: Sequence[Grouped], made: dict[Mir, Mir]) -> Grouped | None:
    """One state for all of these."""
    aggs = {a for m in free for a in m.aggs}
    if len(free) < 2 or len(aggs) > SHARED_AGGREGATES:
        return free[0] if len(free) == 1 else None
    first = free[0]
    whole = aggregate(conditioned(first.source, first.terms), first.group, aggs)
    made.update({m.plan: _of(whole, m) for m in free if m.plan != whole})
    return replace(first, plan=whole, group=whole.group, aggs=whole.aggs)


def _on_one_of(hosts: Sequence[Grouped], m: Grouped, made: dict[Mir, Mir]) -> bool:
    """Is there a state that has all its aggregates, and is whole if it must be?"""
    for h in sorted(hosts, key=lambda h: (not h.full, len(h.aggs), str(h.plan))):
        if set(m.aggs) <= set(h.aggs) and isinstance(h.plan, Aggregate) and h.full >= m.full:
            if m.plan != h.plan:
                made[m.plan] = _of(h.plan, m)
            return True
    return False


def _of(whole: Aggregate, m: Grouped) -> Mir:
    """The member's columns, of groups that are over the same rows, perhaps in other columns."""
    known = grouped(whole)
    assert known is not None
    places = [known.group.index(c) for c in m.group] + [len(known.group) + known.aggs.index(a) for a in m.aggs]
    return shown(whole, places, m.plan)
