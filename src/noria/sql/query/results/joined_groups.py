"""Aggregates that one grouping cannot compute together: one grouping for each kind, joined on the group.

    SELECT a, COUNT(*), SUM(DISTINCT b), COUNT(DISTINCT c) FROM t GROUP BY a
        aggregate count(*) by a (t)
        <=> aggregate sum(b) by a (aggregate groups by a, b (t))
        <=> aggregate count(c) by a (aggregate groups by a, c (t))

Keeps true: every part has the same groups, each once, because a group exists if the input has a row of it.  So the
join of the parts on the group, with NULL equal to NULL, loses and duplicates no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import NULL, call, conjunction, literal
from noria.plan.columns import col_of, cols_of
from noria.plan.mir import Aggregate, Filter, GroupConcat, Join, Mir, Project, agg
from noria.sql.expressions.leaves import AggCall, ConcatCall

ON_COLUMNS = 8  # the most columns of an index, and so of a join; a filter compares further group columns


@dataclass(frozen=True)
class PartialGrouping:
    """A grouping: the group columns first, then the aggregates, in order."""

    plan: Mir
    aggregates: tuple[AggCall, ...]


def partial_groupings(plan: Mir, by: tuple[int, ...], aggregates: Sequence[AggCall], column: Callable[[Expr], int]
              ) -> list[PartialGrouping]:
    """Make the groupings of the plan's rows by its columns `by` that compute the aggregates.  `column`: returns the
    plan's column of an argument."""
    concats = [a for a in aggregates if isinstance(a, ConcatCall)]
    others = [a for a in aggregates if not isinstance(a, ConcatCall)]
    plain = [a for a in others if not a.distinct]
    out = [_plain(plan, by, plain, column)] if plain or not aggregates else []
    for arguments in dict.fromkeys(a.arguments for a in others if a.distinct):
        same = [a for a in others if a.distinct and a.arguments == arguments]
        out.append(_distinct(plan, by, tuple(map(column, arguments)), same))
    return out + [_concat(plan, by, a, column) for a in concats]


def _plain(plan: Mir, by: tuple[int, ...], aggregates: list[AggCall], column: Callable[[Expr], int]) -> PartialGrouping:
    made = {a: agg(a.function, None if a.argument is None else column(a.argument), plan.fields) for a in aggregates}
    ordered = sorted(aggregates, key=lambda a: str(made[a]))  # so that queries with another order share the node
    aggs = tuple(made[a] for a in ordered)
    return PartialGrouping(Aggregate(plan, by, aggs, tuple(map(str, aggs))), tuple(ordered))


def _distinct(plan: Mir, by: tuple[int, ...], values: tuple[int, ...], aggregates: list[AggCall]) -> PartialGrouping:
    """Aggregate each distinct value of a group once.  COUNT of several columns counts the rows without a NULL."""
    columns = tuple(sorted({*by, *values}))
    once: Mir = Aggregate(plan, columns, (), ())
    group, places = tuple(columns.index(c) for c in by), [columns.index(c) for c in values]
    if len(places) > 1:
        unknown = call("or", *(call("is_null", col_of(once, p)) for p in places))
        copies = tuple(col_of(once, i) for i in range(once.width))
        counted = call("if", unknown, NULL, literal(1))
        once = Project(once, (*copies, counted), (*(f.name for f in once.fields), "known"))
        places = [once.width - 1]
    return _plain(once, group, aggregates, lambda _: places[0])


def _concat(plan: Mir, by: tuple[int, ...], a: ConcatCall, column: Callable[[Expr], int]) -> PartialGrouping:
    """GROUP_CONCAT over only the columns that it reads, so that other columns do not break ties."""
    assert a.argument is not None
    read = sorted({*by, *map(column, a.arguments)})
    below = plan if read == list(range(plan.width)) else Project(
        plan, tuple(col_of(plan, c) for c in read), tuple(plan.fields[c].name for c in read))
    order = tuple((read.index(column(e)), d) for e, d in a.order)
    group = tuple(read.index(c) for c in by)
    at = read.index(column(a.argument))
    distinct = tuple(sorted({read.index(column(e)) for e in a.more or (a.argument,)})) if a.distinct else ()
    return PartialGrouping(GroupConcat(below, group, at, distinct, order, a.separator, str(a)), (a,))


def join_groupings(parts: Sequence[PartialGrouping], groups: int) -> Mir:
    """Join the parts on their first `groups` columns.  Output: the group, then the aggregates of each part."""
    out = parts[0].plan
    for part in parts[1:]:
        out = _joined(out, part.plan, groups)
    return out


def _joined(left: Mir, right: Mir, groups: int) -> Mir:
    width = left.width
    shown = [*range(width), *range(width + groups, width + right.width)]
    if groups:
        on = tuple((i, i) for i in range(min(groups, ON_COLUMNS)))
        nulls = any(left.fields[i].nullable for i in range(groups))
        out: Mir = Join(left, right, on, null_safe=tuple(range(len(on))) if nulls else ())
        rest = [call("nseq", col_of(out, i), col_of(out, width + i)) for i in range(ON_COLUMNS, groups)]
        condition = conjunction(rest)
        out = out if condition is None else Filter(out, condition)
    else:  # one row each
        out = Join(_with_one(left), _with_one(right), ((width, right.width),))
        shown = [*range(width), *range(width + 1, width + 1 + right.width)]
    return Project(out, tuple(col_of(out, i) for i in shown), tuple(out.fields[i].name for i in shown))


def _with_one(plan: Mir) -> Mir:
    copies = cols_of(plan)
    return Project(plan, (*copies, literal(1)), (*(f.name for f in plan.fields), "one"))
