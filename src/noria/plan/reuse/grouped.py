"""A grouping taken apart, so that groupings that are written differently can be seen to be of the same rows.

    aggregate count(*) by #0 (project #2 (filter a and b (x)))
        source x, terms {a, b}, group (#2,), aggs (count(*),)

Keeps true: the same columns, whichever way it is put together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from noria.core.expressions.expr import Col, Expr, conjuncts
from noria.core.expressions.functions import conjunction
from noria.core.limits import KEPT_PLANS
from noria.plan.mir import Agg, Aggregate, Distinct, Filter, Mir, Project


@dataclass(frozen=True)
class Grouped:
    """plan: the node itself.  group and the aggregates' columns are the source's; terms are in one order.  full: is it
    kept whole; views: those that read it; looked_up: are some of these partial, so that misses pass here?"""

    plan: Mir
    source: Mir
    terms: tuple[Expr, ...]
    group: tuple[int, ...]
    aggs: tuple[Agg, ...]
    full: bool = False
    views: frozenset[str] = frozenset()
    looked_up: bool = False

    @property
    def groups(self) -> frozenset[int]:
        return frozenset(self.group)

    @property
    def folds(self) -> bool:
        """Is a group's spelling one of several?"""
        return any(self.source.fields[c].type.folds for c in self.group)


def grouped(plan: Mir) -> Grouped | None:
    """The node taken apart, if it groups."""
    return _grouped(plan, plan.tables_called)


@lru_cache(maxsize=KEPT_PLANS)
def _grouped(plan: Mir, _: object) -> Grouped | None:
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
        return None  # a column twice
    terms = list[Expr]()
    while isinstance(below, Filter):
        terms += conjuncts(below.predicate)
        below = below.input
    return Grouped(plan, below, tuple(sorted(dict.fromkeys(terms), key=str)), group, aggs)


def conditioned(source: Mir, terms: Sequence[Expr]) -> Mir:
    condition = conjunction(list(terms))
    return source if condition is None else Filter(source, condition)


def aggregate(source: Mir, group: Iterable[int], aggs: Iterable[Agg]) -> Aggregate:
    """In one order of columns, whoever asks."""
    ordered = tuple(sorted(set(aggs), key=lambda a: (a.function, -1 if a.column is None else a.column, str(a.type))))
    return Aggregate(source, tuple(sorted(group)), ordered, tuple(named(a, source) for a in ordered))


def named(a: Agg, source: Mir) -> str:
    """For people: what is counted or summed up."""
    return f"{a.function}({'*' if a.column is None else source.fields[a.column].name})"


def column(plan: Mir, index: int) -> Col:
    f = plan.fields[index]
    return Col(f.type, f.nullable, index)


def shown(made: Mir, places: Sequence[int], like: Mir) -> Mir:
    """The columns at these places, under the names of what they stand for."""
    return Project(made, tuple(column(made, p) for p in places), tuple(f.name for f in like.fields))
