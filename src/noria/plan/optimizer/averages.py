"""Splits AVG for several workers into SUM and COUNT, which each worker can compute of its part (`Operator.in_parts`).

    aggregate avg(#1) by #0   →   project #0, sum / count (aggregate sum(#1), count(#1) by #0)

AVG stays if a sum may overflow although the average does not.  Call `of_parts`.
"""

from __future__ import annotations

from dataclasses import replace

from noria.core.expressions.expr import Col, Expr
from noria.core.expressions.functions import call, cast, rounded
from noria.core.types import Kind, SqlType
from noria.plan.mir import Agg, Aggregate, Mir, Project, agg
from noria.plan.optimizer.rewrites import everywhere, merge_projects
from noria.plan.view import ViewDef

SUM_DIGITS = 10  # values of at most so many digits have sums that fit, whatever the number of rows


def sums_fit(t: SqlType) -> bool:
    """Whether no sum of values of the type can overflow.  False for doubles, whose sum depends on the order."""
    return t.kind is not Kind.DOUBLE and (t.precision or t.bits // 3) <= SUM_DIGITS


def of_parts(view: ViewDef) -> ViewDef:
    """Split the view's averages, for a server of several workers."""
    return replace(view, plan=everywhere(merge_projects)(everywhere(_divided)(view.plan)))


def _divided(plan: Mir) -> Mir:
    if not isinstance(plan, Aggregate) or not any(_can(plan, a) for a in plan.aggs):
        return plan
    fields, first = plan.input.fields, len(plan.group)
    parts = {a: [agg("sum", a.column, fields), agg("count", a.column, fields)] if _can(plan, a) else [a]
             for a in plan.aggs}
    kept = list(dict.fromkeys(p for each in parts.values() for p in each))
    grouped = Aggregate(plan.input, plan.group, tuple(kept), tuple(map(str, kept)))

    def column(i: int) -> Expr:
        return Col(grouped.fields[i].type, grouped.fields[i].nullable, i)

    exprs = [column(i) for i in range(first)]
    for a in plan.aggs:
        found = [column(first + kept.index(p)) for p in parts[a]]
        exprs.append(rounded(cast(call("div", *found), a.type)) if len(found) > 1 else found[0])
    return Project(grouped, tuple(exprs), tuple(f.name for f in plan.fields))


def _can(plan: Aggregate, a: Agg) -> bool:
    return a.function == "avg" and a.column is not None and sums_fit(plan.input.fields[a.column].type)
