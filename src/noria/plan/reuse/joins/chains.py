"""Finds chains in plans: a chain is a relation and a maximal sequence of inner and left joins over it.

Keeps true: a chain describes a plan and does not change it.  Its columns are those of all its relations, in the plan's
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from noria.core.expressions.expr import Col
from noria.plan.mir import Aggregate, Base, Filter, Join, Mir, Project
from noria.plan.reuse.errors import errorless
from noria.plan.reuse.memo import memoized


@dataclass(frozen=True)
class Chain:
    """A left-deep tree of joins.  `relations`: the first input, then the right input of each join.  `joins`: in the
    written order.

    `same`: classes of columns that inner joins make equal.  A relation that is joined by these may change its place;
    any other must follow the relations whose columns its join uses.
    """

    plan: Mir
    relations: tuple[Mir, ...]
    joins: tuple[Join, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        starts = [0]
        for r in self.relations:
            starts.append(starts[-1] + r.width)
        return tuple(starts)

    @cached_property
    def keeps(self) -> tuple[bool, ...]:
        """For each relation, whether its join needs a kept copy of the rows that are joined before it."""
        return (False, *(not all(copied(j.left, a) for a, _ in j.on) for j in self.joins))

    @cached_property
    def same(self) -> tuple[frozenset[int], ...]:
        found: list[frozenset[int]] = []
        for i, join in enumerate(self.joins, 1):
            for a, b in join.on if self.is_plain(i) else ():
                pair = frozenset((a, self.starts[i] + b))
                met = [s for s in found if not s.isdisjoint(pair)]
                found = [s for s in found if s not in met] + [pair.union(*met)]
        return tuple(found)

    def is_plain(self, i: int) -> bool:
        """Whether the relation is first, or joined by an inner join whose order does not matter."""
        if i == 0:
            return True
        join = self.joins[i - 1]
        return not join.outer and not join.null_safe and not self.keeps[i] and all(
            copied(join.right, b) for _, b in join.on)

    def leaves_out(self, i: int) -> bool:
        """Whether the join with this relation can drop rows, because they find no match."""
        return not (i > 0 and self.joins[i - 1].outer) and not _is_table(self.relations[i])


def _is_table(plan: Mir) -> bool:
    return isinstance(plan, Base) or (isinstance(plan, Project) and isinstance(plan.input, Base))


def copied(plan: Mir, column: int) -> bool:
    """Whether rows of the plan can be looked up by the column without a kept copy."""
    if isinstance(plan, Base):
        return True
    if isinstance(plan, Filter):
        return copied(plan.input, column)
    if isinstance(plan, Project):
        e = plan.exprs[column]
        return isinstance(e, Col) and copied(plan.input, e.index)
    if isinstance(plan, Join):
        width = plan.left.width
        return copied(plan.left, column) if column < width else (
            not plan.outer and copied(plan.right, column - width))
    return isinstance(plan, Aggregate) and column < len(plan.group)


@memoized
def chain(plan: Join) -> Chain:
    """Take a tree of joins apart."""
    joins: list[Join] = []
    at: Mir = plan
    while isinstance(at, Join):
        joins.append(at)
        at = at.left
    joins.reverse()
    return Chain(plan, (at, *(j.right for j in joins)), tuple(joins))


# ---------------------------------------------------------------- in plans
@dataclass(frozen=True)
class FoundChain:
    """A chain in a plan.  `free`: whether its joins may be reordered.  They may if the nodes above accept its columns
    in any order, and none of these may hold an error.  `level`: the depth of nested chains, from 1."""

    free: bool
    level: int


@memoized
def chains_in(plan: Mir) -> Mapping[Join, FoundChain]:
    """The maximal chains of a plan."""
    found: dict[Join, FoundChain] = {}

    def go(m: Mir, free: bool) -> int:
        if not isinstance(m, Join):
            takes = isinstance(m, Project | Aggregate) or (isinstance(m, Filter) and free)
            return max((go(i, takes) for i in m.inputs), default=0)
        level = 1 + max(go(r, False) for r in chain(m).relations)
        known = found.get(m)
        free = free and all(errorless(m)) and (known is None or known.free)
        found[m] = FoundChain(free, level)
        return level

    go(plan, False)
    return found


def joins_of(plan: Mir) -> frozenset[Mir]:
    """The joins of the plan's chains."""
    return frozenset(j for c in chains_in(plan) for j in chain(c).joins)
