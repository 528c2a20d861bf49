"""Aggregates over the rows of several keys: the view has finer groups, and the lookup's groups are merged afterwards.

    SELECT AVG(b) FROM t WHERE a IN (?, ?)
        view:    aggregate sum(b), count(b) by a, looked up by a
        after:   project sum / count (aggregate sum(sum), sum(count) (found))

Keeps true: COUNT, SUM, MIN and MAX of a group follow from those of its parts.  So the view may group by whatever the
key and the conditions after the lookup need.  COUNT over no rows is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from noria.core.expressions.expr import Call, Col, Expr
from noria.core.expressions.functions import call, cast, literal, with_arguments, with_each_argument
from noria.core.types import BIGINT, Field
from noria.plan.after import LookedUpRows
from noria.plan.mir import Aggregate, Mir, agg
from noria.sql.expressions.leaves import AggCall
from noria.sql.query.relations.context import Context
from noria.sql.query.relations.joins import JoinedPlan
from noria.sql.query.relations.scope import Scope
from noria.sql.query.results.grouping import GroupedPlan, group
from noria.sql.text.refusals import not_merged

_PARTS = ("count", "count_star", "sum", "min", "max", "avg")
_MERGES = {"count": "sum", "count_star": "sum", "sum": "sum", "min": "min", "max": "max"}


@dataclass(frozen=True)
class Regrouped:
    """The two groupings.  `parts`: the view's.  `merged`: the one over the rows that a lookup found.  `places`: the
    columns of `merged` that hold the block's groups and aggregates."""

    parts: GroupedPlan
    merged: Mir
    places: dict[Expr, Expr]

    def expr(self, e: Expr) -> Expr:
        """Rewrite an expression over the block's columns and aggregates to one over `merged`."""
        e = _without_avg(e)
        at = self.places.get(e)
        if at is not None:
            return at
        if isinstance(e, Col):
            raise self.parts.not_grouped(e)
        return with_each_argument(e, self.expr)


def _without_avg(e: Expr) -> Expr:
    """AVG(x)   →   SUM(x) / COUNT(x)"""
    if isinstance(e, AggCall) and e.function == "avg" and e.argument is not None:
        total = agg("sum", 0, (Field("", e.argument.type),)).type
        return call("div", AggCall(total, True, "sum", e.argument), AggCall(BIGINT, False, "count", e.argument))
    if isinstance(e, Call):
        args = tuple(map(_without_avg, e.args))
        return e if args == e.args else with_arguments(e, args)
    return e


def regroup(context: Context, tree: exp.Select, scope: Scope, joined: JoinedPlan, groups: list[Expr], finer: list[Expr],
            computed: list[Expr]) -> Regrouped:
    """Group by the block's groups and `finer`, then merge by the block's groups alone."""
    distinct = [a for e in computed for a in _aggregates(e) if a.distinct or a.function not in _PARTS]
    if distinct:
        raise not_merged(f"{distinct[0].function.upper()} of whole groups over several keys", tree,
                             "ask for one key at a time")
    computed = [_without_avg(e) for e in computed]
    parts = group(context, tree, scope, joined, groups, finer, computed)
    fixed = scope.determined({g.index for g in groups if isinstance(g, Col)}) if tree.args.get("group") else set()
    kept = [e for e in parts.places if e in groups or (isinstance(e, Col) and e.index in fixed)]
    calls = [e for e in parts.places if isinstance(e, AggCall)]
    return Regrouped(parts, *_merged(parts, kept, calls))


def _merged(parts: GroupedPlan, kept: Sequence[Expr], calls: Sequence[AggCall]) -> tuple[Mir, dict[Expr, Expr]]:
    fields = parts.plan.fields
    by = tuple(sorted({parts.places[e] for e in kept}))
    merges = {a: agg(_MERGES[a.function], parts.places[a], fields) for a in calls}
    unique = sorted(set(merges.values()), key=str)
    merged = Aggregate(LookedUpRows(fields), by, tuple(unique), tuple(map(str, unique)))
    places: dict[Expr, Expr] = {}
    for e in kept:
        at = by.index(parts.places[e])
        places[e] = Col(merged.fields[at].type, merged.fields[at].nullable, at)
    for a, merge in merges.items():
        at = len(by) + unique.index(merge)
        column: Expr = Col(merged.fields[at].type, True, at)
        if a.function in ("count", "count_star"):
            column = cast(call("coalesce", column, literal(0)), BIGINT)
        places[a] = column
    return merged, places


def _aggregates(e: Expr) -> list[AggCall]:
    if isinstance(e, AggCall):
        return [e]
    return [a for x in e.args for a in _aggregates(x)] if isinstance(e, Call) else []

