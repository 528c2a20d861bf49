"""`share`: the strategies over all plans of a set of views, from the base tables down.

Groups of groups are rewritten after what they are over, level by level: a level is how many groupings stand above
each other.  Keeps true: the outcome is a function of the set; it is the same whichever view came first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from noria.plan.mir import Aggregate, Distinct, Mir
from noria.plan.optimizer.rewrites import merge_projects
from noria.plan.reuse.conditions import conditions
from noria.plan.reuse.finer_groups import finer_groups
from noria.plan.reuse.grouped import Grouped, grouped
from noria.plan.reuse.side_by_side import side_by_side
from noria.plan.view import ViewDef

Strategy = Callable[[Sequence[Grouped], Sequence[Grouped]], dict[Mir, Mir]]
"""What stands for some of these groupings, over others that stay as they are."""
Fullness = Callable[[ViewDef], Collection[Mir]]
"""The nodes that are kept whole in a program of this view alone."""

STRATEGIES: tuple[Strategy, ...] = (side_by_side, conditions, finer_groups)


@dataclass(frozen=True)
class Shared:
    """plans: of each view by its name.  instead: what stands for which node.  members: the groupings that a shared one
    stands for."""

    plans: dict[str, Mir]
    instead: dict[Mir, Mir]
    members: dict[Mir, frozenset[Mir]]


def share(views: Sequence[ViewDef], fullness: Fullness, standing: Mapping[Mir, bool] | None = None,
          instead: Mapping[Mir, Mir] | None = None) -> Shared:
    """The plans of the views.  standing: groupings that stay as they are, and whether they are full; instead: what
    stands for others in them."""
    made, members = dict(instead or {}), dict[Mir, frozenset[Mir]]()
    plans = {v.name: replaced(v.plan, made) for v in views}
    hosts = [replace(g, full=full) for n, full in (standing or {}).items() if (g := grouped(n)) is not None]
    stay = {h.plan for h in hosts}
    level = 1
    while any(_level(p) >= level for p in plans.values()):
        for strategy in STRATEGIES:
            new = strategy(_at(level, views, plans, stay, fullness), hosts)
            made = {m: replaced(p, new) for m, p in made.items()} | new
            plans = {name: replaced(p, new) for name, p in plans.items()}
            _note(members, new)
        level += 1
    return Shared(plans, made, members)


def _note(members: dict[Mir, frozenset[Mir]], new: Mapping[Mir, Mir]) -> None:
    for m, instead in new.items():
        own = members.pop(m, frozenset((m,)))
        at = host(instead)
        members[at] = members.get(at, frozenset()) | own


def host(plan: Mir) -> Mir:
    """The grouping that stands for another."""
    while not isinstance(plan, Aggregate | Distinct):
        (plan,) = plan.inputs
    return plan


def hosts_in(plans: Iterable[Mir]) -> set[Mir]:
    """Every grouping of some plans."""
    return {n for n in _nodes(plans) if isinstance(n, Aggregate | Distinct)}


def replaced(plan: Mir, instead: Mapping[Mir, Mir]) -> Mir:
    """The plan with each node that another stands for, inputs first; what copies columns of it is one step."""
    if not instead:
        return plan
    done: dict[Mir, Mir] = {}

    def go(m: Mir) -> Mir:
        if m not in done:
            inputs = tuple(map(go, m.inputs))
            same = m if inputs == m.inputs else merge_projects(m.with_inputs(*inputs))
            done[m] = instead.get(same, same)
        return done[m]

    return go(plan)


def _at(level: int, views: Sequence[ViewDef], plans: Mapping[str, Mir], stay: Collection[Mir], fullness: Fullness
        ) -> list[Grouped]:
    """The groupings of a level, each once, in an order of their own; what stands already is none of them.  Full is
    what is full for the sake of one view."""
    used = defaultdict[Mir, set[str]](set)
    for v in views:
        for n in _nodes([plans[v.name]]) if not v.internal else ():
            if isinstance(n, Aggregate | Distinct) and n not in stay and _level(n) == level:
                used[n].add(v.name)
    if not used or len(used) + len(stay) < 2:
        return []
    concerned = {name for names in used.values() for name in names}
    whole = {n for v in views if v.name in concerned for n in fullness(replace(v, plan=plans[v.name]))}
    taken = [replace(g, full=n in whole, views=frozenset(names))
             for n, names in used.items() if (g := grouped(n)) is not None]
    return sorted(taken, key=lambda g: (str(g.plan), tuple(map(str, g.terms)), g.group))


def _nodes(plans: Iterable[Mir]) -> Iterator[Mir]:
    """Every node of all plans, once."""
    seen, rest = set[Mir](), list(plans)
    while rest:
        if (node := rest.pop()) not in seen:
            seen.add(node)
            rest += node.inputs
            yield node


def _level(plan: Mir, known: dict[int, int] | None = None) -> int:
    """How many groupings stand above each other."""
    known = {} if known is None else known
    if id(plan) not in known:
        above = max((_level(i, known) for i in plan.inputs), default=0)
        known[id(plan)] = above + isinstance(plan, Aggregate | Distinct)
    return known[id(plan)]
