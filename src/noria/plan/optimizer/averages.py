"""AVG among several workers: SUM and COUNT, which can be had of parts (`Operator.in_parts`), and their quotient.

    aggregate avg(#1) by #0   →   project #0, sum / count (aggregate sum(#1), count(#1) by #0)

Where a part's sum may be too large while the average is not, it stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from noria.core.expressions.expr import Col, Expr
from noria.core.expressions.functions import call, cast
from noria.core.types import Kind, SqlType
from noria.plan.mir import Agg, Aggregate, Mir, Project, agg
from noria.plan.optimizer.rewrites import everywhere, merge_projects
from noria.plan.view import ViewDef

SUM_DIGITS = 10  # of values whose sums fit, whatever the number of rows


def sums_fit(t: SqlType) -> bool:
    """Is no sum of rows too large for what a sum may be?  That of doubles depends on their order."""
    return t.kind is not Kind.DOUBLE and (t.precision or t.bits // 3) <= SUM_DIGITS


def of_parts(view: ViewDef) -> ViewDef:
    return replace(view, plan=everywhere(merge_projects)(everywhere(_divided)(view.plan)))


def _divided(plan: Mir) -> Mir:
    if not isinstance(plan, Aggregate) or not any(_can(plan, a) for a in plan.aggs):
        return plan
    fields, first = plan.input.fields, len(plan.group)
    parts = {a: [agg("sum", a.column, fields), agg("count", a.column, fields)] if _can(plan, a) else [a]
             for a in plan.aggs}
    kept = list(dict.fromkeys(p for each in parts.values() for p in each))
    whole = Aggregate(plan.input, plan.group, tuple(kept), tuple(map(str, kept)))

    def column(i: int) -> Expr:
        return Col(whole.fields[i].type, whole.fields[i].nullable, i)

    exprs = [column(i) for i in range(first)]
    for a in plan.aggs:
        found = [column(first + kept.index(p)) for p in parts[a]]
        exprs.append(cast(call("div", *found), a.type) if len(found) > 1 else found[0])
    return Project(whole, tuple(exprs), tuple(f.name for f in plan.fields))


def _can(plan: Aggregate, a: Agg) -> bool:
    return a.function == "avg" and a.column is not None and sums_fit(plan.input.fields[a.column].type)
