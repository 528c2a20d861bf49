"""Merges kept copies of the same rows with different columns into one copy with all of these columns.

    join on day = day (days, project story, date(at) as day (comments))         ┐
    aggregate max(id) by day (project id, date(at) as day (comments))           ┘
        ↓
    both over one copy of   project id, story, date(at) as day (comments)

Rows can be looked up by a computed column only in a full copy.  A join by a computed column needs one.  So does a
grouping by one if it reads rows again, for MIN, MAX, sums of doubles or text of several spellings.  The merged copy
needs no more memory than its members together, and its readers stay as full or partial as before.  A projection
without a copy stays as narrow as it is.  A wider copy of a view in use is used unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from noria.core.expressions.expr import Expr
from noria.core.types import Kind
from noria.plan.mir import Aggregate, Mir, Project
from noria.plan.reuse.errors import errorless
from noria.plan.reuse.groups.one_projection import order
from noria.plan.reuse.joins.chains import Chain, chain, chains_in, copied
from noria.plan.reuse.joins.node_replacement import Moved, NodeReplacement, at_places
from noria.plan.reuse.memo import memoized


@memoized
def copies_in(plan: Mir) -> frozenset[Project]:
    """The projections of a plan whose rows are kept as a copy."""
    own = (p for c in chains_in(plan) for p in _of_chain(chain(c)).values())
    return frozenset(own).union(_of_groups(plan))


def _of_groups(plan: Mir) -> Iterator[Project]:
    if isinstance(plan, Aggregate) and isinstance(plan.input, Project) and _looks_again(plan) and not all(
            copied(plan.input, c) for c in plan.group):
        yield plan.input
    for i in plan.inputs:
        yield from _of_groups(i)


def _looks_again(plan: Aggregate) -> bool:
    fields = plan.input.fields
    return bool(plan.group) and (any(fields[c].type.folds for c in plan.group) or any(
        a.function in ("min", "max") or (a.column is not None and a.function in ("sum", "avg", "variance")
                                         and fields[a.column].type.kind is Kind.DOUBLE) for a in plan.aggs))


def _of_chain(c: Chain) -> dict[int, Project]:
    """The projections among a chain's relations that are kept as copies, by the relation's index."""
    found: dict[int, Project] = {}
    for i, join in enumerate(c.joins, 1):
        sides = [(i, join.right, [b for _, b in join.on])]
        if i == 1:
            sides.append((0, join.left, [a for a, _ in join.on]))
        for at, rows, by in sides:
            if isinstance(rows, Project) and not all(copied(rows, x) for x in by):
                found[at] = rows
    return found


def one_copy(plans: Mapping[str, Mir], standing: Iterable[Mir], stay: Collection[str] = ()
             ) -> tuple[dict[str, Mir], dict[Mir, Mir]]:
    """Rewrite the plans to use as few copies as possible.  Returns them, and their replaced nodes with the new ones.

    `standing`: plans that do not change; nor do the plans with the names `stay`.
    """
    made = {name: p for name, p in plans.items() if name not in stay and copies_in(p)}
    others = [copies_in(p) for p in (*standing, *(plans[name] for name in stay))] if made else []
    instead: dict[Mir, Mir] = {}
    while new := _together(made.values(), frozenset[Project]().union(*others)):
        moving = NodeReplacement(new)
        made = {name: moving.of(p) for name, p in made.items()}
        instead = {m: moving.of(p) for m, p in instead.items()} | moving.instead()
    return {**plans, **made}, instead


def _together(plans: Collection[Mir], others: Collection[Project]) -> dict[Mir, Moved]:
    """The replacements for projections below groupings and for chains; inner ones before those that contain them."""
    groups = {p for plan in plans for p in _of_groups(plan)}
    found = [(c, at.free, _of_chain(chain(c))) for p in plans for c, at in chains_in(p).items()]
    chains = {c: of for c, free, of in found if free and of}
    free = groups.union(*(of.values() for of in chains.values()))
    fixed = {*others, *(p for _, free, of in found if not free for p in of.values())}
    wider = _wider({p for p in free if all(errorless(p))}, fixed)
    below = NodeReplacement({p: (p, {}) for p in wider})
    new: dict[Mir, Moved] = {p: (wider[p], _places(p, wider[p])) for p in wider
                             if p in groups and not below.concerns(p.input)}
    for c, of in chains.items():
        relations = chain(c).relations
        some = {i: wider[p] for i, p in of.items() if p in wider}
        if some and not any(below.concerns(r.inputs[0] if i in some else r) for i, r in enumerate(relations)):
            new[c] = _widened(chain(c), some)
    return new


def _wider(free: Collection[Project], fixed: Collection[Project]) -> dict[Project, Project]:
    """The wider projections that replace those whose rows others have, too."""
    same = defaultdict[Mir, list[Project]](list)
    for p in free:
        same[p.input].append(p)
    made: dict[Project, Project] = {}
    for rows, some in same.items():
        there = sorted((f for f in fixed if f.input == rows and all(errorless(f))), key=lambda f: (f.width, str(f)))
        hosts = {p: next((f for f in there if set(p.exprs) <= set(f.exprs)), None) for p in some}
        left = [p for p in some if hosts[p] is None]
        names: dict[Expr, str] = {}
        for e, name in sorted(((e, n) for p in left for e, n in zip(p.exprs, p.names, strict=True)),
                              key=lambda named: (order(named[0]), named[1])):
            names.setdefault(e, name)
        wide = Project(rows, tuple(names), tuple(names.values())) if len(left) > 1 else None
        made.update((p, w) for p in some if (w := hosts[p] or wide) is not None and w != p)
    return made


def _places(p: Project, wide: Project) -> dict[int, int]:
    return {i: wide.exprs.index(e) for i, e in enumerate(p.exprs)}


def _widened(c: Chain, wide: Mapping[int, Project]) -> Moved:
    """The chain with some relations replaced by wider ones, and the new positions of its columns."""
    at: Mir = wide.get(0, c.relations[0])
    place = _in(c, 0, wide)
    for i, join in enumerate(c.joins, 1):
        right, own = wide.get(i, join.right), _in(c, i, wide)
        there = {**place, **{c.starts[i] + b: at.width + x for b, x in own.items()}}
        residual = join.residual and at_places(join.residual, there)
        at = replace(join, left=at, right=right, on=tuple((place[a], own[b]) for a, b in join.on), residual=residual)
        place = there
    return at, place


def _in(c: Chain, i: int, wide: Mapping[int, Project]) -> dict[int, int]:
    """The positions of a relation's columns in its replacement."""
    r = c.relations[i]
    return _places(r, wide[i]) if i in wide and isinstance(r, Project) else {x: x for x in range(r.width)}
