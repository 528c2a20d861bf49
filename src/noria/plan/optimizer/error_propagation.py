"""Carries evaluation errors of conditions to readers: if an error leaves it unknown whether a row exists, reads fail.

    filter p (x)   →   filter may(#p) (project x, p (x)), if p can fail; the column #p is 1 or an error

`error_reporting_view` carries this column, the plan's *error*, up to the view.  There it turns a column that every
reader of the row sees into an error.  So an error is a value: it appears and disappears with its row, and only the
row's keys fail.  A join has the errors of both sides.  One failing row fails all aggregates of its group.  In a TopK,
failing rows come first.  An error of a LEFT JOIN's right side fails all columns of that side.

Keeps true: a plan without a possible error stays the same object.  The columns of a plan keep their positions; the
error follows them.  The only additional rows are those that may exist.  A row that another condition excludes reports
no error: FALSE and NULL win over an error, in whatever order they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from noria.core.expressions.expr import Col, Expr, conjuncts, substitute
from noria.core.expressions.functions import FALSE, TRUE, call, conjunction, literal
from noria.core.expressions.functions.failing import aggregate_can_fail, can_fail
from noria.plan.columns import col_of
from noria.plan.mir import (
    CARRYING,
    WHOLE,
    Aggregate,
    Distinct,
    Filter,
    GroupConcat,
    Join,
    Mir,
    Project,
    Repeat,
    TopK,
    UnionAll,
    Window,
    agg,
    over,
)
from noria.plan.view import ViewDef

ERROR = "error"  # the name of the column


@dataclass(frozen=True)
class ErrorCarryingPlan:
    """A plan with its columns in their positions.  `error`: the column that is an error if the row's existence is
    unknown.  `shaky`: columns that can hold an error themselves."""

    plan: Mir
    error: int | None = None
    shaky: frozenset[int] = frozenset()


def error_reporting_view(view: ViewDef) -> ViewDef:
    """The view in the form that is maintained: its rows carry the errors of its conditions."""
    carried = _ErrorPropagation().carry(view.plan)
    if carried.error is None or (view.internal and not view.feed):
        return view if carried.plan is view.plan else replace(view, plan=carried.plan)
    at = next((i for i in range(min(view.visible, view.plan.width)) if i not in view.key), 0)
    exprs, names, key = _copies(carried.plan, view.plan.width), [f.name for f in view.plan.fields], view.key
    if at in view.key:  # only the key is shown: lookups use a copy of its column
        key = tuple(view.plan.width if k == at else k for k in view.key)
        exprs.append(exprs[at])
        names.append(names[at])
    exprs[at] = call("told", exprs[at], col_of(carried.plan, carried.error))
    return replace(view, plan=Project(carried.plan, tuple(exprs), tuple(names)), key=key)


def error_reporting_plan(plan: Mir) -> Mir:
    """The plan of a query whose first column carries the errors of its conditions."""
    carried = _ErrorPropagation().carry(plan)
    if carried.error is None:
        return carried.plan
    exprs = _copies(carried.plan, plan.width)
    exprs[0] = call("told", exprs[0], col_of(carried.plan, carried.error))
    return Project(carried.plan, tuple(exprs), tuple(f.name for f in plan.fields))


class _ErrorPropagation:
    """One pass over a plan; a part that occurs twice is carried once."""

    def __init__(self) -> None:
        self._done: dict[Mir, ErrorCarryingPlan] = {}

    def carry(self, plan: Mir) -> ErrorCarryingPlan:
        if plan not in self._done:
            inputs = [self.carry(i) for i in plan.inputs]
            self._done[plan] = _CARRY.get(type(plan), _as_it_is)(plan, *inputs)
        return self._done[plan]


# ------------------------------------------------------------------ helpers
def _copies(plan: Mir, columns: int | Iterable[int]) -> list[Expr]:
    return [col_of(plan, i) for i in (range(columns) if isinstance(columns, int) else columns)]


def _any_of(plan: Mir, columns: Iterable[int | None]) -> Expr | None:
    """The expression that is 1, or an error if one of the columns is; None without columns."""
    failing = [col_of(plan, c) for c in columns if c is not None]
    return call("told", TRUE, *failing) if failing else None


def _with(plan: Mir, width: int, error: Expr | None) -> tuple[Mir, int | None]:
    """Project the first `width` columns, then the error."""
    if error is None:
        return plan, None
    if isinstance(error, Col) and error.index == width == plan.width - 1:
        return plan, width
    names = (*(f.name for f in plan.fields[:width]), ERROR)
    return Project(plan, (*_copies(plan, width), error), names), width


def _same(plan: Mir, *inputs: ErrorCarryingPlan) -> Mir:
    """The node over the carried inputs."""
    plans = tuple(c.plan for c in inputs)
    return plan if all(a is b for a, b in zip(plans, plan.inputs, strict=True)) else plan.with_inputs(*plans)


def _as_it_is(plan: Mir, *inputs: ErrorCarryingPlan) -> ErrorCarryingPlan:
    """Carry a table, or a Sort or Limit, which keep their input's errors."""
    if not inputs:
        return ErrorCarryingPlan(plan)
    return replace(inputs[0], plan=_same(plan, *inputs))


# ------------------------------------------------------------------ rows by themselves
def _filter(plan: Filter, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    """Carry a filter.  Terms that cannot fail come first, so that rows they exclude report no error."""
    terms = conjuncts(plan.predicate)
    failing = [t for t in terms if can_fail(t, c.shaky.__contains__)]
    if not failing:
        return replace(c, plan=_same(plan, c))
    sure = conjunction([t for t in terms if t not in failing])
    below = c.plan if sure is None else Filter(c.plan, sure)
    width, unsure = plan.width, conjunction(failing)
    assert unsure is not None
    known = [] if c.error is None else [col_of(below, c.error)]
    names = (*(f.name for f in below.fields[:width]), *[ERROR] * (1 + len(known)))
    tested = Project(below, (*_copies(below, width), unsure, *known), names)
    kept: Mir = Filter(tested, call("may", col_of(tested, width)))
    kept, error = _with(kept, width, _any_of(kept, range(width, kept.width)) if known else col_of(kept, width))
    return ErrorCarryingPlan(kept, error, c.shaky)


def _project(plan: Project, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    shaky = frozenset(i for i, e in enumerate(plan.exprs) if can_fail(e, c.shaky.__contains__))
    if c.error is None:
        return ErrorCarryingPlan(_same(plan, c), None, shaky)
    exprs = (*plan.exprs, col_of(c.plan, c.error))
    return ErrorCarryingPlan(Project(c.plan, exprs, (*plan.names, ERROR)), plan.width, shaky)


def _repeat(plan: Repeat, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    """Carry a repetition.  A row whose count fails occurs once, as an error."""
    if plan.count not in c.shaky:
        return replace(c, plan=_same(plan, c))
    count, failed = col_of(c.plan, plan.count), _any_of(c.plan, (plan.count, c.error))
    assert failed is not None
    exprs = _copies(c.plan, plan.width)
    names = tuple(f.name for f in plan.fields)
    once = call("if", call("may", call("told", FALSE, count)), literal(1), count)
    below = Project(c.plan, (*exprs, failed, once), (*names, ERROR, "times"))
    repeated = Repeat(below, plan.width + 1)
    kept, error = _with(repeated, plan.width, col_of(repeated, plan.width))
    return ErrorCarryingPlan(kept, error, c.shaky)


def _union(plan: UnionAll, left: ErrorCarryingPlan, right: ErrorCarryingPlan) -> ErrorCarryingPlan:
    shaky = left.shaky | right.shaky
    if left.error is None and right.error is None:
        return ErrorCarryingPlan(_same(plan, left, right), None, shaky)
    sides = [Project(c.plan, (*_copies(c.plan, plan.width), _any_of(c.plan, (c.error,)) or TRUE),
                     (*(f.name for f in plan.fields), ERROR)) for c in (left, right)]
    return ErrorCarryingPlan(UnionAll(*sides), plan.width, shaky)


# ------------------------------------------------------------------ joins
def _join(plan: Join, left: ErrorCarryingPlan, right: ErrorCarryingPlan) -> ErrorCarryingPlan:
    lw, rw = plan.left.width, plan.right.width
    shaky = left.shaky | {lw + c for c in right.shaky}
    keys = {a for a, _ in plan.on} & left.shaky, {b for _, b in plan.on} & right.shaky
    fails = plan.residual is not None and can_fail(plan.residual, shaky.__contains__)
    if left.error is None and right.error is None and not fails and not any(keys):
        return ErrorCarryingPlan(_same(plan, left, right), None, shaky)
    there, at = right.plan, right.plan.width
    if fails:  # a column that is NULL if the row has no match
        there = Project(there, (*_copies(there, at), literal(1)), (*(f.name for f in there.fields), "there"))
    wide = left.plan.width
    place = {**{c: c for c in range(lw)}, **{lw + c: wide + c for c in range(rw)}}

    def moved(e: Expr) -> Expr:
        return substitute(e, lambda c: replace(c, index=place[c.index]))

    residual = plan.residual and moved(plan.residual)
    joined = replace(plan, left=left.plan, right=there,
                     residual=call("may", residual) if fails and residual is not None else residual)
    of_right = [None if right.error is None else wide + right.error, *(wide + c for c in keys[1])]
    errors: list[Expr] = [col_of(joined, c) for c in (left.error, *keys[0], *of_right) if c is not None]
    if fails and residual is not None:
        errors.append(call("if", call("is_null", col_of(joined, wide + at)), TRUE, residual))
    exprs = _copies(joined, place.values())
    if plan.outer and (right.error is not None or fails):
        exprs[lw:] = [call("told", e, *errors) for e in exprs[lw:]]
        shaky |= set(range(lw, lw + rw))
    names = (*(f.name for f in plan.fields), ERROR)
    return ErrorCarryingPlan(Project(joined, (*exprs, call("told", TRUE, *errors)), names), lw + rw, frozenset(shaky))


# ------------------------------------------------------------------ groups
def _aggregate(plan: Aggregate, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    """Carry a grouping.  An error of one row fails all aggregates of its group."""
    read = c.shaky & {a.column for a in plan.aggs if a.function not in CARRYING and a.column is not None}
    of_groups = [i for i, g in enumerate(plan.group) if g in c.shaky]
    shaky = frozenset({*of_groups, *(len(plan.group) + i for i, a in enumerate(plan.aggs) if _fails(a, plan, c))})
    error = _any_of(c.plan, (c.error, *sorted(read)))
    if error is None and not of_groups:
        return ErrorCarryingPlan(_same(plan, c), None, shaky)
    grouped: Mir = _same(plan, c)
    if error is not None:
        below, at = _with(c.plan, plan.input.width, error)
        assert at is not None
        failed = agg("sum", at, below.fields)
        grouped = replace(plan, input=below, aggs=(*plan.aggs, failed), names=(*plan.names, ERROR))
    failing = _copies(grouped, (*of_groups, *([] if error is None else [plan.width])))
    keys = len(plan.group)
    exprs = [*_copies(grouped, keys), *(call("told", e, *failing) for e in _copies(grouped, range(keys, plan.width)))]
    names = (*(f.name for f in plan.fields), ERROR)
    made = Project(grouped, (*exprs, call("told", TRUE, *failing)), names)
    return ErrorCarryingPlan(made, plan.width, frozenset({*of_groups, *range(len(plan.group), plan.width)}))


def _fails(a: Any, plan: Aggregate | Window, c: ErrorCarryingPlan) -> bool:
    """Whether the aggregate or window function can return an error."""
    if a.column is None or a.function in ("count", "count_star"):
        return False
    type = plan.inputs[0].fields[a.column].type
    return a.column in c.shaky or aggregate_can_fail(a.function, type)


def _distinct(plan: Distinct, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    if c.error is None:
        return replace(c, plan=_same(plan, c))
    return _aggregate(Aggregate(plan.input, tuple(range(plan.width)), (), ()), c)


def _group_concat(plan: GroupConcat, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    read = {plan.column, *plan.distinct, *(o for o, _ in plan.order)} & c.shaky
    if c.error is None and not read and not {*plan.group} & c.shaky:
        return ErrorCarryingPlan(_same(plan, c))
    failing = _copies(c.plan, [i for i in (c.error, *read) if i is not None])
    exprs = _copies(c.plan, plan.input.width)
    if failing:
        exprs[plan.column] = call("told", exprs[plan.column], *failing)
    below = Project(c.plan, tuple(exprs), tuple(f.name for f in plan.input.fields))
    made = plan.with_inputs(below)
    shaky = frozenset({len(plan.group), *(i for i, g in enumerate(plan.group) if g in c.shaky)})
    kept, error = _with(made, plan.width, _any_of(made, sorted(shaky)))
    return ErrorCarryingPlan(kept, error, shaky)


def _window(plan: Window, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    width, calls = plan.input.width, len(plan.calls)
    own = frozenset(width + i for i, a in enumerate(plan.calls) if _fails(a, plan, c))
    read = {*plan.partition, *(o for o, _ in plan.order)} & c.shaky
    error = _any_of(c.plan, (c.error, *sorted(read)))
    if error is None:
        return ErrorCarryingPlan(_same(plan, c), None, c.shaky | own)
    below, at = _with(c.plan, width, error)
    assert at is not None
    total = over("sum", at, below.fields, WHOLE)
    made = replace(plan, input=below, calls=(*plan.calls, total), names=(*plan.names, ERROR))
    failed = col_of(made, width + 1 + calls)
    results = _copies(made, range(width + 1, width + 1 + calls))
    exprs = [*_copies(made, width), *(call("told", e, failed) for e in results)]
    names = (*(f.name for f in plan.fields), ERROR)
    kept = Project(made, (*exprs, call("told", TRUE, failed)), names)
    return ErrorCarryingPlan(kept, plan.width, c.shaky | set(range(width, plan.width)))


def _top(plan: TopK, c: ErrorCarryingPlan) -> ErrorCarryingPlan:
    """Carry a TopK.  Failing rows come first.  With an OFFSET, which could skip them, all rows of their group fail."""
    read = {*plan.group, *(o for o, _ in plan.order)} & c.shaky
    error = _any_of(c.plan, (c.error, *sorted(read)))
    if error is None:
        return replace(c, plan=_same(plan, c))
    below, at = _with(c.plan, plan.width, error)
    assert at is not None
    if plan.offset:
        windowed = Window(below, plan.group, (), (over("sum", at, below.fields, WHOLE),), ("errors",))
        below, at = _with(windowed, plan.width, _any_of(windowed, (windowed.width - 1,)))
        assert at is not None
    return ErrorCarryingPlan(replace(plan, input=below, order=((at, False), *plan.order)), at, c.shaky)


_CARRY: dict[type[Mir], Callable[..., ErrorCarryingPlan]] = {
    Filter: _filter, Project: _project, Repeat: _repeat, UnionAll: _union, Join: _join, Aggregate: _aggregate,
    Distinct: _distinct, GroupConcat: _group_concat, Window: _window, TopK: _top,
}
__all__ = ["ErrorCarryingPlan", "error_reporting_plan", "error_reporting_view"]
