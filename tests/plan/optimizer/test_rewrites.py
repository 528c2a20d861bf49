"""Each rewrite of a plan: before and after, and that it gives the same rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from noria.core.expressions.expr import Col, Expr, col
from noria.core.expressions.functions import call, literal
from noria.core.types import INT, TEXT, Column, Field, TableDef
from noria.plan.mir import Aggregate, Base, Filter, Join, Mir, Project, Window, agg, show
from noria.plan.mir import over as window_over
from noria.plan.optimizer import optimize, rewrites
from reference import mir_reference

T = Base(TableDef("t", (Column("a", INT), Column("b", INT), Column("s", TEXT)), table_id=1))
U = Base(TableDef("u", (Column("a", INT), Column("c", INT)), table_id=2))
TABLES = {"t": [(1, 2, "x"), (1, None, "X"), (None, 3, "y"), (2, 2, None), (3, 5, "z")],
          "u": [(1, 7), (1, None), (2, 0), (None, 4), (5, 5)]}


def c(plan: Mir, i: int) -> Col:
    f: Field = plan.fields[i]
    return col(i, f.type, f.nullable)


def over(plan: Mir, op: str, i: int, value: int) -> Expr:
    return call(op, c(plan, i), literal(value))


def project(plan: Mir, *exprs: Expr) -> Project:
    return Project(plan, exprs, tuple(f"c{i}" for i in range(len(exprs))))


FILTERS = Filter(Filter(T, over(T, "gt", 0, 0)), over(T, "lt", 1, 4))
COMPUTED = project(T, c(T, 1), call("add", c(T, 0), literal(1)), c(T, 2))
ABOVE_PROJECT = Filter(COMPUTED, call("and", over(COMPUTED, "gt", 0, 1), over(COMPUTED, "lt", 1, 9)))
JOIN, LEFT = Join(T, U, ((0, 0),)), Join(T, U, ((0, 0),), outer=True)
COPY = project(T, c(T, 0), c(T, 1), c(T, 2))
WIDE = project(T, c(T, 0), call("add", c(T, 0), c(T, 1)), c(T, 2), call("mul", c(T, 1), literal(2)))
NUMBERED = Window(T, (0, 2), ((1, True),), (window_over("row_number", None, T.fields),), ("n",))
DOUBLED = project(COMPUTED, call("add", c(COMPUTED, 1), c(COMPUTED, 1)))

CASES: list[tuple[str, Callable[[Mir], Mir], Mir, str]] = [
    ("merge_filters", rewrites.merge_filters, FILTERS, """
filter and(gt(#0, 0), lt(#1, 4))
  table t"""),
    ("push_filters through a projection, but not what is computed", rewrites.push_filters, ABOVE_PROJECT, """
filter lt(#1, 9)
  project #1 as c0, add(#0, 1) as c1, #2 as c2
    filter gt(#1, 1)
      table t"""),
    ("push_filters to both sides of a join", rewrites.push_filters,
     Filter(JOIN, call("and", over(JOIN, "gt", 1, 1), over(JOIN, "lt", 4, 9), call("ne", c(JOIN, 1), c(JOIN, 4)))), """
filter ne(#1, #4)
  join on #0 = #0
    filter gt(#1, 1)
      table t
    filter lt(#1, 9)
      table u"""),
    ("push_filters to the left side only of a left join", rewrites.push_filters,
     Filter(LEFT, call("and", over(LEFT, "gt", 1, 1), call("is_null", c(LEFT, 4)))), """
filter is_null(#4)
  left join on #0 = #0
    filter gt(#1, 1)
      table t
    table u"""),
    ("push_filters never below a grouping", rewrites.push_filters,
     Filter(Aggregate(T, (0,), (agg("count_star", None, T.fields),), ("n",)), over(T, "gt", 0, 1)), """
filter gt(#0, 1)
  aggregate count_star(*) by #0
    table t"""),
    ("push_filters below a window, over its group but not over CI text", rewrites.push_filters,
     Filter(NUMBERED, call("and", over(NUMBERED, "gt", 0, 1), call("eq", c(NUMBERED, 2), literal("x")))), """
filter eq(#2, 'x')
  window row_number() by #0, #2 order #1 desc
    filter gt(#0, 1)
      table t"""),
    ("top_of_numbered", rewrites.top_of_numbered, Filter(NUMBERED, over(NUMBERED, "lt", 3, 3)), """
filter lt(#3, 3)
  window row_number() by #0, #2 order #1 desc
    top 2 by #0, #2 order #1 desc
      table t"""),
    ("merge_projects", rewrites.merge_projects, project(COMPUTED, c(COMPUTED, 2), c(COMPUTED, 1)), """
project #2 as c0, add(#0, 1) as c1
  table t"""),
    ("merge_projects computes nothing twice", rewrites.merge_projects, DOUBLED, """
project add(#1, #1) as c0
  project #1 as c0, add(#0, 1) as c1, #2 as c2
    table t"""),
    ("drop_copies", rewrites.drop_copies, Join(COPY, U, ((0, 0),)), """
join on #0 = #0
  table t
  table u"""),
    ("narrow", rewrites.narrow, project(Join(WIDE, U, ((0, 0),)), c(WIDE, 2), col(5, INT)), """
project #1 as c0, #3 as c1
  join on #0 = #0
    project #0 as c0, #2 as c2
      table t
    table u"""),
    ("narrow below a grouping", rewrites.narrow,
     Aggregate(WIDE, (2,), (agg("sum", 3, WIDE.fields),), ("n",)), """
aggregate sum(#1) by #0
  project #2 as c2, mul(#1, 2) as c3
    table t"""),
]


@pytest.mark.parametrize("rewrite, before, after", [x[1:] for x in CASES], ids=[x[0] for x in CASES])
def test_rewrite(rewrite: Callable[[Mir], Mir], before: Mir, after: str) -> None:
    changed = rewrite(before)
    assert show(changed) == after.strip()
    optimized = optimize(before)
    for plan in (changed, optimized):
        assert rows_of(plan) == rows_of(before)
    assert [(f.name, f.type) for f in optimized.fields] == [(f.name, f.type) for f in before.fields]


def rows_of(plan: Mir) -> list[str]:
    return sorted(map(repr, mir_reference.run(plan, TABLES)))


def test_optimize_is_stable() -> None:
    for _, _, before, _ in CASES:
        once = optimize(before)
        assert optimize(once) == once


def test_what_stands_twice_is_narrowed_once() -> None:
    """Queries that name each other twice double their plan: that of 60 of them has 2^60 steps."""
    plan: Mir = project(T, c(T, 0), c(T, 1), c(T, 2))
    for _ in range(60):
        joined = Join(plan, plan, ((0, 0),))
        plan = project(joined, c(joined, 0), c(joined, 1), call("add", c(joined, 1), literal(1)))
    assert rewrites.narrow(project(plan, c(plan, 0))).width == 1
