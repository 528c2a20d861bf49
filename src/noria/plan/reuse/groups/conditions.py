"""Merges groupings of the same rows under different conditions: each aggregate sees only the rows of its condition.

    aggregate count(*) by story (filter vote = 1 (votes))
    aggregate count(*) by story (filter vote = 0 (votes))
        ↓
    project story, count(up)     (filter count(up) > 0 (…))     ┐
    project story, count(down)   (filter count(down) > 0 (…))   ┴ aggregate count(up), count(down) by story
        (project story, if(vote = 1, 1, NULL) up, if(vote = 0, 1, NULL) down (filter vote = 1 or vote = 0 (votes)))

Rows that no condition accepts are filtered below, so the state has only groups that a member has.  A condition may be
weaker than another, or absent.  Refused if a condition can fail, or if a group's text has several spellings: the shown
one must come from the condition's rows.

A miss of the merged state computes more.  So partial states are merged only if the same views read them, because one
miss then fills the state for all.  Full states are merged only if no partial view looks rows up in them, and if their
conditions differ only in constants.  A rare condition beside none would widen many rows for the sake of few.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from noria.core.expressions.expr import Call, Col, Const, Expr
from noria.core.expressions.functions import call, conjunction, literal, truth
from noria.core.expressions.functions.failing import can_fail
from noria.core.limits import SHARED_AGGREGATES
from noria.core.types import BIGINT
from noria.plan.mir import Agg, Aggregate, Base, Filter, Join, Mir, Project
from noria.plan.reuse.groups.grouped import GroupingParts, aggregate, column, conditioned, shown


def conditions(members: Sequence[GroupingParts], standing: Sequence[GroupingParts]) -> dict[Mir, Mir]:
    same = defaultdict[object, list[GroupingParts]](list)
    for m in members:
        if _possible(m):
            same[m.source, m.groups, m.full, _shape(m) if m.full else m.views].append(m)
    made: dict[Mir, Mir] = {}
    for together in same.values():
        if len(together) > 1:
            made.update(_one_state(together))
    return made


def _possible(m: GroupingParts) -> bool:
    if (m.full and m.looked_up) or m.folds or any(can_fail(t, lambda c: not stored(m.source, c)) for t in m.terms):
        return False
    return isinstance(m.source, Base) or not any(a.function in ("min", "max") for a in m.aggs)


def stored(plan: Mir, index: int) -> bool:
    """Whether the column is an unchanged column of a table, which holds no errors."""
    if isinstance(plan, Filter):
        return stored(plan.input, index)
    if isinstance(plan, Project):
        e = plan.exprs[index]
        return isinstance(e, Col) and stored(plan.input, e.index)
    if isinstance(plan, Join):
        width = plan.left.width
        return stored(plan.left, index) if index < width else stored(plan.right, index - width)
    return isinstance(plan, Base)


def _shape(m: GroupingParts) -> tuple[str, ...]:
    """The conditions without their constants."""
    return tuple(sorted(_CONSTANT.sub("?", str(t)) for t in m.terms))


_CONSTANT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?<![#\w])-?\d[\d.]*""")


@dataclass(frozen=True)
class _ConditionalAggregates:
    """A member, as aggregates over columns that are NULL outside its rows.  `there`: the aggregate that counts its rows
    in a group, by which groups without any are dropped; None if there are no such groups."""

    member: GroupingParts
    aggs: tuple[Agg, ...]
    there: Agg | None


def _one_state(together: Sequence[GroupingParts]) -> dict[Mir, Mir]:
    source = together[0].source
    common = [t for t in together[0].terms if all(t in m.terms for m in together)]
    own = {m: conjunction([t for t in m.terms if t not in common]) for m in together}
    group = tuple(sorted(together[0].group))
    columns: dict[Expr, int] = {column(source, c): i for i, c in enumerate(group)}
    for e in sorted({e for m in together for e in _values(m, own[m])} - columns.keys(), key=str):
        columns[e] = len(columns)
    seen = [_seen(m, own[m], columns) for m in together]
    aggs = {a for s in seen for a in (*s.aggs, *([s.there] if s.there else []))}
    if len(aggs) > SHARED_AGGREGATES:
        return {}
    wanted = [e for e in own.values() if e is not None]
    some = [*common, call("or", *sorted(wanted, key=str))] if len(wanted) == len(together) else common
    values = Project(conditioned(source, some), tuple(columns), tuple(_name(e, source) for e in columns))
    merged = aggregate(values, range(len(group)), aggs)
    return {s.member.plan: _of(merged, group, s) for s in seen}


def _values(m: GroupingParts, own: Expr | None) -> list[Expr]:
    """The expressions that its aggregates are computed from."""
    flag = [_where(own, literal(1))] if own is not None and _flagged(m) else []
    return [*flag, *(_where(own, column(m.source, a.column)) for a in m.aggs if a.column is not None)]


def _flagged(m: GroupingParts) -> bool:
    return bool(m.group) or any(a.column is None for a in m.aggs)


def _where(own: Expr | None, value: Expr) -> Expr:
    """The value in rows of the condition `own`, NULL in others."""
    if own is None:
        return value
    return Call(value.type, True, "if", (truth(own), value, Const(value.type, True, None)))


def _seen(m: GroupingParts, own: Expr | None, columns: dict[Expr, int]) -> _ConditionalAggregates:
    there = Agg("count", columns[_where(own, literal(1))], BIGINT) if own is not None and _flagged(m) else None
    aggs = tuple(there or a if a.column is None else
                 replace(a, column=columns[_where(own, column(m.source, a.column))]) for a in m.aggs)
    return _ConditionalAggregates(m, aggs, there if m.group else None)


def _of(merged: Aggregate, group: Sequence[int], s: _ConditionalAggregates) -> Mir:
    made: Mir = merged
    if s.there is not None:
        made = Filter(merged, call("gt", column(merged, len(group) + merged.aggs.index(s.there)), literal(0)))
    places = [group.index(c) for c in s.member.group] + [len(group) + merged.aggs.index(a) for a in s.aggs]
    return shown(made, places, s.member.plan)


def _name(e: Expr, source: Mir) -> str:
    """A readable name: the condition, or the column with its condition."""
    if isinstance(e, Col):
        return source.fields[e.index].name
    assert isinstance(e, Call)
    own, value, _ = e.args
    text = re.sub(r"#(\d+)", lambda found: source.fields[int(found[1])].name, str(own))
    return f"{source.fields[value.index].name} if {text}" if isinstance(value, Col) else text
