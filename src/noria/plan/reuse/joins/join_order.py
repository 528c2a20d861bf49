"""Merges inner joins of the same relations by the same columns, in whatever order they are written.

    aggregate count(*) by b.kind (join on a.x = b.x (a, b))
    aggregate max(a.at) by b.kind (join on b.x = a.x (b, a))      →   project … (aggregate … (join on a.x = b.x (a, b)))

`joined` describes a tree of inner joins without its order; `rows.py` uses it to read views through each other.
`join_order` rewrites groupings over such trees to one order: that of a state in use, else the least.  `prefix.py`
treats joins that are different but begin alike.

Classes of equal columns are compared, not the written pairs: a = b and b = c equals a = b and a = c.  Refused if a
column may hold an error, which only some orders would report, and for pairs in which NULL equals NULL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, permutations, product
from math import factorial, prod

from noria.core.expressions.expr import Col, substitute
from noria.core.types import Field
from noria.plan.mir import Base, Join, Mir, Project
from noria.plan.reuse.errors import errorless
from noria.plan.reuse.groups.grouped import GroupingParts, conditioned, moved, parts_of
from noria.plan.reuse.memo import memoized

_MOST_TIES = 24  # the most orders of equal relations that are compared


@dataclass(frozen=True)
class CanonicalJoins(Mir):
    """Inner joins of these relations, in a canonical order.  `same`: classes of equal columns.  Only compared; never in
    a graph."""

    relations: tuple[Mir, ...]
    same: frozenset[frozenset[int]]

    @cached_property
    def inputs(self) -> tuple[Mir, ...]:
        return self.relations

    def with_inputs(self, *inputs: Mir) -> CanonicalJoins:
        return CanonicalJoins(inputs, self.same)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(f for r in self.relations for f in r.fields)

    def __str__(self) -> str:
        return " and ".join(" = ".join(f"#{c}" for c in sorted(s)) for s in sorted(self.same, key=sorted))


@dataclass(frozen=True)
class JoinOrder:
    """The order of a tree of joins.  `joined`: its canonical form.  `place`: the position of each of the tree's columns
    in it."""

    joined: CanonicalJoins
    place: tuple[int, ...]

    @cached_property
    def columns(self) -> dict[int, int]:
        """The tree's column for each column of the canonical form."""
        return {p: c for c, p in enumerate(self.place)}


def joined(plan: Mir) -> JoinOrder | None:
    """The canonical form of a tree of inner joins; None for any other plan, or if a column may hold an error."""
    return _joined(plan) if isinstance(plan, Join) else None


@memoized
def _joined(plan: Join) -> JoinOrder | None:
    relations = list(_relations(plan))
    if len(relations) < 2 or not all(all(errorless(r)) for r in relations):
        return None
    same = _classes(plan)
    starts = _starts(relations)
    best: tuple[list[list[int]], tuple[int, ...], list[int]] | None = None
    for order in _orders(relations):
        to = _starts([relations[i] for i in order])
        place = [0] * plan.width
        for new, old in enumerate(order):
            for c in range(relations[old].width):
                place[starts[old] + c] = to[new] + c
        written = sorted(sorted(place[c] for c in s) for s in same)
        if best is None or written < best[0]:
            best = written, tuple(place), list(order)
    assert best is not None
    written, columns, least = best
    return JoinOrder(CanonicalJoins(tuple(relations[i] for i in least), frozenset(map(frozenset, written))), columns)


def _relations(plan: Mir) -> Iterator[Mir]:
    """The joined relations, from left to right."""
    if _is_plain(plan):
        for i in plan.inputs:
            yield from _relations(i)
    else:
        yield plan


def _is_plain(plan: Mir) -> bool:
    return isinstance(plan, Join) and not plan.outer and not plan.null_safe


def _classes(plan: Mir) -> list[set[int]]:
    """The classes of the tree's columns that its joins make equal."""
    found: list[set[int]] = []
    for a, b in _pairs(plan, 0):
        met = [s for s in found if a in s or b in s]
        found = [s for s in found if s not in met] + [{a, b}.union(*met)]
    return found


def _pairs(plan: Mir, start: int) -> Iterator[tuple[int, int]]:
    if isinstance(plan, Join) and _is_plain(plan):
        width = plan.left.width
        yield from ((start + a, start + width + b) for a, b in plan.on)
        yield from _pairs(plan.left, start)
        yield from _pairs(plan.right, start + width)


def _starts(relations: Sequence[Mir]) -> list[int]:
    """The position of each relation's first column."""
    starts = [0]
    for r in relations:
        starts.append(starts[-1] + r.width)
    return starts[:-1]


def _orders(relations: Sequence[Mir]) -> Iterator[tuple[int, ...]]:
    """The orders that sort the relations by their text.  Equal relations come in every order, if there are at most
    _MOST_TIES; else in the written one."""
    texts = [text(r) for r in relations]
    by_text = sorted(range(len(relations)), key=lambda i: (texts[i], i))
    ties = [list(g) for _, g in groupby(by_text, key=lambda i: texts[i])]
    if prod(factorial(len(t)) for t in ties) > _MOST_TIES:
        yield tuple(by_text)
        return
    for each in product(*(permutations(t) for t in ties)):
        yield tuple(i for t in each for i in t)


def text(plan: Mir) -> str:
    """The printed plan without names, which is the same for equal plans."""
    if isinstance(plan, Base):
        return f"table {plan.table.table_id or plan.table.name} of {plan.width}"
    own = ", ".join(map(str, plan.exprs)) if isinstance(plan, Project) else str(plan)
    return f"{own} ({', '.join(map(text, plan.inputs))})"


# ---------------------------------------------------------------- of groupings
def join_order(members: Sequence[GroupingParts], standing: Sequence[GroupingParts]) -> dict[Mir, Mir]:
    there, free = _by_join(standing), _by_join(members)
    made: dict[Mir, Mir] = {}
    for of, group in free.items():
        source = min((parts_of(m).source for m in there.get(of, group)), key=text)
        made.update((m.plan, _over(m, source)) for m in group if parts_of(m).source != source)
    return made


def _by_join(groupings: Sequence[GroupingParts]) -> dict[CanonicalJoins, list[GroupingParts]]:
    found = defaultdict[CanonicalJoins, list[GroupingParts]](list)
    for g in groupings:
        if (order := joined(parts_of(g).source)) is not None:
            found[order.joined].append(g)
    return found


def _over(m: GroupingParts, source: Mir) -> Mir:
    """The grouping over the same join in another order."""
    a = parts_of(m)
    mine, other = joined(a.source), joined(source)
    assert mine is not None and other is not None
    terms, exprs = ([substitute(e, lambda c: Col(c.type, c.nullable, other.columns[mine.place[c.index]]))
                     for e in some] for some in (a.terms, a.exprs))
    rows = conditioned(source, terms)
    return moved(m, Project(rows, tuple(exprs), tuple(f.name for f in m.source.fields)), range(len(exprs)))
