"""Takes groupings apart, so that groupings of the same rows can be recognised though they are written differently.

    aggregate count(*) by #0 (project #2 (filter a and b (x)))
        source x, terms {a, b}, group (#2,), aggs (count(*),)

Keeps true: a grouping that is made from the parts has the original's columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from noria.core.expressions.expr import Col, Expr, composed, conjuncts
from noria.core.expressions.functions import conjunction
from noria.core.types import SqlType
from noria.plan.mir import Agg, Aggregate, BaseProperties, Distinct, Filter, Mir, Project
from noria.plan.reuse.memo import memoized


@dataclass(frozen=True)
class GroupingParts:
    """A grouping's parts.  `plan`: the node itself.  `group`, and the columns of `aggs`, refer to the source.  `terms`:
    in a canonical order.  `full`: whether its state is full.  `views`: those that read it.  `looked_up`: whether some
    of these are partial, so that misses look rows up here."""

    plan: Mir
    source: Mir
    terms: tuple[Expr, ...]
    group: tuple[int, ...]
    aggs: tuple[Agg, ...]
    full: bool = False
    views: frozenset[str] = frozenset()
    looked_up: bool = False

    @property
    def tables_read(self) -> frozenset[BaseProperties]:
        return self.plan.tables_read

    @property
    def groups(self) -> frozenset[int]:
        return frozenset(self.group)

    @property
    def folds(self) -> bool:
        """Whether a group may have several spellings."""
        return any(self.source.fields[c].type.folds for c in self.group)


@memoized
def grouped(plan: Mir) -> GroupingParts | None:
    """Take a grouping apart; None for any other node, and for a grouping that has a column twice."""
    if isinstance(plan, Distinct):
        below, group, aggs = plan.input, tuple(range(plan.width)), tuple[Agg, ...]()
    elif isinstance(plan, Aggregate):
        below, group, aggs = plan.input, plan.group, plan.aggs
    else:
        return None
    while isinstance(below, Project) and all(isinstance(e, Col) for e in below.exprs):
        at = [e.index for e in below.exprs if isinstance(e, Col)]
        group = tuple(at[c] for c in group)
        aggs = tuple(a if a.column is None else replace(a, column=at[a.column]) for a in aggs)
        below = below.input
    if len(set(group)) < len(group):
        return None  # it groups by a column twice
    terms = list[Expr]()
    while isinstance(below, Filter):
        terms += conjuncts(below.predicate)
        below = below.input
    return GroupingParts(plan, below, tuple(sorted(dict.fromkeys(terms), key=str)), group, aggs)


@dataclass(frozen=True)
class SourceGrouping:
    """A grouping over the source below all its filters and projections, to whose columns `terms` and `exprs` refer.

    `exprs`: one for each column of the grouping's input; `group` and `values` are those it uses.  `aggs`: functions
    with their arguments.
    """

    source: Mir
    terms: tuple[Expr, ...]
    exprs: tuple[Expr, ...]
    group: frozenset[Expr]
    values: frozenset[Expr]
    aggs: frozenset[tuple[str, Expr | None, SqlType]]


@memoized
def parts_of(m: GroupingParts) -> SourceGrouping:
    below, terms = m.source, list(m.terms)
    exprs: list[Expr] = [column(below, i) for i in range(below.width)]
    while isinstance(below, Project | Filter):
        if isinstance(below, Filter):
            terms += conjuncts(below.predicate)
        else:
            terms, exprs = ([composed(e, below.exprs) for e in some] for some in (terms, exprs))
        below = below.input
    aggs = frozenset((a.function, None if a.column is None else exprs[a.column], a.type) for a in m.aggs)
    ordered = tuple(sorted(dict.fromkeys(terms), key=str))
    return SourceGrouping(below, ordered, tuple(exprs), frozenset(exprs[c] for c in m.group),
                          frozenset(e for _, e, _ in aggs if e is not None), aggs)


def conditioned(source: Mir, terms: Sequence[Expr]) -> Mir:
    condition = conjunction(list(terms))
    return source if condition is None else Filter(source, condition)


def aggregate(source: Mir, group: Iterable[int], aggs: Iterable[Agg]) -> Aggregate:
    """An Aggregate with its columns in a canonical order."""
    ordered = tuple(sorted(set(aggs), key=lambda a: (a.function, -1 if a.column is None else a.column, str(a.type))))
    return Aggregate(source, tuple(sorted(group)), ordered, tuple(named(a, source) for a in ordered))


def moved(m: GroupingParts, below: Mir, to: Sequence[int]) -> Mir:
    """The grouping over `below`, in which the source's columns have the positions `to`."""
    if isinstance(m.plan, Distinct):
        return shown(Distinct(shown(below, [to[c] for c in m.group], m.plan)), range(len(m.group)), m.plan)
    aggs = tuple(a if a.column is None else replace(a, column=to[a.column]) for a in m.aggs)
    names = tuple(f.name for f in m.plan.fields)
    regrouped = Aggregate(below, tuple(to[c] for c in m.group), aggs, names[len(m.group):])
    return shown(regrouped, range(regrouped.width), m.plan)


def named(a: Agg, source: Mir) -> str:
    """A readable name of an aggregate."""
    return f"{a.function}({'*' if a.column is None else source.fields[a.column].name})"


def column(plan: Mir, index: int) -> Col:
    f = plan.fields[index]
    return Col(f.type, f.nullable, index)


def shown(made: Mir, places: Sequence[int], like: Mir) -> Mir:
    """Project the columns at these positions, under the names of the plan `like`."""
    return Project(made, tuple(column(made, p) for p in places), tuple(f.name for f in like.fields))
