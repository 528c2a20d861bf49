"""`share` applies the strategies to all plans of a set of views, from the base tables down.

Groupings are rewritten level by level; a grouping's level is the depth of nested groupings.  Keeps true: the result is
a function of the set, so the order of the views does not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from noria.plan.mir import Aggregate, Distinct, Mir
from noria.plan.optimizer.rewrites import merge_projects
from noria.plan.reuse.groups.conditions import conditions
from noria.plan.reuse.groups.finer_groups import finer_groups
from noria.plan.reuse.groups.grouped import GroupingParts, grouped, parts_of
from noria.plan.reuse.groups.one_projection import one_projection
from noria.plan.reuse.groups.side_by_side import side_by_side
from noria.plan.reuse.joins.chains import chain, chains_in, joins_of
from noria.plan.reuse.joins.join_order import join_order, joined
from noria.plan.reuse.joins.one_copy import copies_in, one_copy
from noria.plan.reuse.joins.prefix import beginnings, prefixes
from noria.plan.reuse.memo import memoized
from noria.plan.view import ViewDef

Strategy = Callable[[Sequence[GroupingParts], Sequence[GroupingParts]], dict[Mir, Mir]]
"""What stands for some of these groupings, over others that stay as they are."""


@dataclass(frozen=True)
class UnsharedLayout:
    """The layout of a program of one view.  `full`: its full nodes.  `looked_up`: whether the view itself is partial.
    `copies`: the number of Keeps, copies for lookups that no state supports."""

    full: frozenset[Mir]
    looked_up: bool
    copies: int


Fullness = Callable[[ViewDef, Mir], UnsharedLayout]
"""What is full in a program of this view alone, of this plan."""

STRATEGIES: tuple[Strategy, ...] = (join_order, one_projection, side_by_side, conditions, finer_groups)


@dataclass(frozen=True)
class SharingResult:
    """The result of sharing.  `plans`: the views' plans by name.  `instead`: replaced nodes with the new ones.
    `members`: for each shared grouping or copy those it replaces; for each shared join the chains that contain it."""

    plans: dict[str, Mir]
    instead: dict[Mir, Mir]
    members: dict[Mir, frozenset[Mir]]


def share(views: Sequence[ViewDef], fullness: Fullness, standing: Mapping[Mir, bool] | None = None,
          instead: Mapping[Mir, Mir] | None = None, stay: Collection[Mir] = ()) -> SharingResult:
    """Rewrite the plans of the views so that they share.

    `standing`: groupings that do not change, and whether they are full.  `instead`: the nodes that these replace.
    `stay`: plans that do not change.
    """
    made, members = dict(instead or {}), dict[Mir, frozenset[Mir]]()
    plans = {v.name: replaced(v.plan, made) for v in views}
    plans, new = _in_like_order(views, plans, stay, fullness)
    if new:
        made = {m: replaced(p, new) for m, p in made.items()} | new
    concerned = [v for v in views if not v.internal and groupings(plans[v.name])]
    hosts = [replace(g, full=full) for n, full in (standing or {}).items() if (g := grouped(n)) is not None]
    stand = {h.plan for h in hosts}
    level = 1
    while any(at >= level for v in concerned for at in groupings(plans[v.name]).values()):
        for strategy in STRATEGIES:
            new = strategy(_at(level, concerned, plans, stand, fullness), hosts)
            if strategy is join_order:
                new = _no_fuller(new, concerned, plans, fullness)
            if new:
                made = {m: replaced(p, new) for m, p in made.items()} | new
                plans = {name: replaced(p, new) for name, p in plans.items()}
                _note(members, new)
        level += 1
    written = {g for v in concerned for g in groupings(v.plan)}
    members = {at: of | {at} if at in written else of for at, of in members.items()}
    return SharingResult(plans, made, members | _shared_joins(views, plans, stay) | _shared_copies(views, plans))


def _shared_joins(views: Sequence[ViewDef], plans: Mapping[str, Mir], stay: Collection[Mir]
                  ) -> dict[Mir, frozenset[Mir]]:
    """The new joins that several chains share, each with these chains."""
    moved = {j for v in views if plans[v.name] != v.plan for j in joins_of(plans[v.name]) - joins_of(v.plan)}
    users = defaultdict[Mir, set[Mir]](set)
    for p in (*plans.values(), *stay) if moved else ():
        for c in chains_in(p):
            for j in moved.intersection(chain(c).joins):
                users[j].add(c)
    return {j: frozenset(of) for j, of in users.items() if len(of) > 1}


def _shared_copies(views: Sequence[ViewDef], plans: Mapping[str, Mir]) -> dict[Mir, frozenset[Mir]]:
    """The merged copies, each with the copies that it replaces."""
    made = {p for v in views if plans[v.name] != v.plan for p in copies_in(plans[v.name]) - copies_in(v.plan)}
    own = {p for v in views for p in copies_in(v.plan)} if made else set()
    return {m: frozenset(p for p in own if p.input == m.input and set(p.exprs) <= set(m.exprs)) for m in made}


def _in_like_order(views: Sequence[ViewDef], plans: Mapping[str, Mir], stay: Collection[Mir], fullness: Fullness
                   ) -> tuple[dict[str, Mir], dict[Mir, Mir]]:
    """Merge copies and order joins, except in views that would become less partial.  Returns the plans, and the
    replaced groupings with the new ones."""
    as_they_are = set[str]()
    while True:
        before, wide = one_copy(plans, stay, as_they_are)
        after, instead = prefixes(before, stay, as_they_are)
        instead = {m: replaced(p, instead) for m, p in wide.items()} | instead
        bad = {v.name for v in views if after[v.name] != plans[v.name] and not v.internal
               and _is_fuller(v, plans[v.name], after[v.name], fullness)}
        if not bad:
            return after, {m: p for m, p in instead.items() if isinstance(m, Aggregate | Distinct)}
        as_they_are |= bad


def _is_fuller(view: ViewDef, before: Mir, after: Mir, fullness: Fullness) -> bool:
    """Whether the view would be less partial with the plan `after`, or keep more copies."""
    was, now = fullness(view, before), fullness(view, after)
    return was.looked_up > now.looked_up or len(now.full) > len(was.full) or now.copies > was.copies


def _no_fuller(new: Mapping[Mir, Mir], views: Sequence[ViewDef], plans: Mapping[str, Mir], fullness: Fullness
               ) -> dict[Mir, Mir]:
    """The replacements that make no view less partial: a join's order decides by which columns it can be looked up."""
    bad = set[Mir]()
    for v in views:
        before, after = plans[v.name], replaced(plans[v.name], new)
        if before != after and _is_fuller(v, before, after, fullness):
            bad.update(groupings(before))
    return {m: p for m, p in new.items() if m not in bad}


def _at(level: int, views: Sequence[ViewDef], plans: Mapping[str, Mir], stay: Collection[Mir], fullness: Fullness
        ) -> list[GroupingParts]:
    """The groupings of a level, each once, in a canonical order, without those in `stay`.  One is full if a view alone
    needs it full."""
    used = defaultdict[Mir, list[ViewDef]](list)
    for v in views:
        for n, at in groupings(plans[v.name]).items():
            if at == level and n not in stay:
                used[n].append(v)
    if not used or len(used) + len(stay) < 2:
        return []
    concerned = {v.name: v for users in used.values() for v in users}
    alone = {name: fullness(v, plans[name]) for name, v in concerned.items()}
    full_nodes = frozenset[Mir]().union(*(a.full for a in alone.values()))
    taken = [replace(g, full=n in full_nodes, views=frozenset(v.name for v in users),
                     looked_up=any(alone[v.name].looked_up for v in users))
             for n, users in used.items() if (g := grouped(n)) is not None]
    return sorted(taken, key=lambda g: (str(g.plan), tuple(map(str, g.terms)), g.group))


def _note(members: dict[Mir, frozenset[Mir]], new: Mapping[Mir, Mir]) -> None:
    for m, instead in new.items():
        own = members.pop(m, frozenset((m,)))
        at = host(instead)
        members[at] = members.get(at, frozenset()) | own


def replaced(plan: Mir, instead: Mapping[Mir, Mir]) -> Mir:
    """Replace the plan's groupings by `instead`, inputs first, and merge projections above the new ones."""
    if not any(g in instead for g in groupings(plan)):
        return plan
    done: dict[Mir, Mir] = {}

    def go(m: Mir) -> Mir:
        if m not in done:
            inputs = tuple(map(go, m.inputs))
            same = m if inputs == m.inputs else merge_projects(m.with_inputs(*inputs))
            done[m] = instead.get(same, same)
        return done[m]

    return go(plan)


def host(plan: Mir) -> Mir:
    """The grouping below a replacement's projections and filters."""
    while not isinstance(plan, Aggregate | Distinct):
        (plan,) = plan.inputs
    return plan


@memoized
def groupings(plan: Mir) -> Mapping[Mir, int]:
    """Every grouping of a plan with its level: the depth of nested groupings, itself included."""
    found: dict[Mir, int] = {}
    for i in plan.inputs:
        found.update(groupings(i))
    if isinstance(plan, Aggregate | Distinct):
        found[plan] = 1 + max(found.values(), default=0)
    return found


@memoized
def sources(plan: Mir) -> frozenset[Mir]:
    """The sources of a plan's groupings and copies, and the joins with which its chains can begin.  Plans without a
    common one share nothing."""
    below = (parts_of(g).source for n in groupings(plan) if (g := grouped(n)) is not None)
    grouped_rows = frozenset(s if (order := joined(s)) is None else order.joined for s in below)
    return grouped_rows.union(beginnings(plan), (p.input for p in copies_in(plan)))


def related(views: Sequence[ViewDef], changed: Collection[Mir]) -> list[ViewDef]:
    """The views that have one of the changed sources, or are connected to such a view by common sources."""
    found, reached, rest = list[ViewDef](), set(changed), list(views)
    while near := [v for v in rest if not reached.isdisjoint(sources(v.plan))]:
        found += near
        reached.update(*(sources(v.plan) for v in near))
        rest = [v for v in rest if v not in near]
    return found
