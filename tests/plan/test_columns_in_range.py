"""A plan whose columns are not there cannot be made: a packet with one is refused before it reaches a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import INT, TEXT, Column, TableDef
from noria.plan import mir
from noria.plan.view import ViewDef

TABLE = mir.Base(TableDef("t", (Column("id", INT, False), Column("s", TEXT)), (0,)))
COUNT = mir.agg("count_star", None, TABLE.fields)
PLANS: dict[str, Callable[[int], Any]] = {
    "filter": lambda c: mir.Filter(TABLE, functions.call("eq", col(c, INT), const(1, INT))),
    "project": lambda c: mir.Project(TABLE, (col(c, INT),), ("a",)),
    "join": lambda c: mir.Join(TABLE, TABLE, ((0, c),)),
    "join, left": lambda c: mir.Join(TABLE, TABLE, ((c, 0),)),
    "aggregate": lambda c: mir.Aggregate(TABLE, (c,), (COUNT,), ("n",)),
    "top": lambda c: mir.TopK(TABLE, (c,), ((0, False),), 1),
    "top, order": lambda c: mir.TopK(TABLE, (), ((c, False),), 1),
    "key": lambda c: ViewDef("v", TABLE, (c,), 2),
}


@pytest.mark.parametrize("column", [2, -1, -2, 2**31, -(2**31) - 1])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_column_that_is_not_there(plan: Callable[[int], Any], column: int) -> None:
    plan(0)
    with pytest.raises((ValueError, IndexError)):
        plan(column)
