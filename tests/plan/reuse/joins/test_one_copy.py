"""Rows that several views keep a copy of are kept once."""

from __future__ import annotations

from itertools import permutations

from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import INT
from noria.plan import mir
from noria.plan.view import ViewDef
from plan.examples import T, U, W, copies, shown
from reference.join_chains import known


def test_copies_of_the_same_rows_are_one() -> None:
    """By what is computed of x: joined with x, joined with y, and grouped; of all columns but one each."""
    def some(rows: mir.Mir, *columns: int) -> mir.Mir:
        return mir.Project(rows, tuple(rows.exprs[c] for c in columns), tuple(rows.names[c] for c in columns))

    all_ = known(T, 1)  # id, x, y, x or 0
    views = [shown("a", mir.Join(W, some(all_, 3, 0), ((1, 0),)), 0, 3),
             shown("b", mir.Join(some(all_, 2, 3), U, ((1, 1),), True), 2, 0),
             ViewDef("c", mir.Aggregate(some(all_, 3, 1), (0,), (mir.agg("max", 1, all_.fields),), ("m",)), (0,), 2)]
    assert [len(copies([v])) for v in views] == [1, 1, 1]
    for order in permutations(views):
        (one,) = copies(order)
        assert one.width == 4 and one.reuse.startswith("one state instead of 3")
    count = mir.Aggregate(some(all_, 3, 1), (0,), (mir.agg("count", 1, all_.fields),), ("n",))
    (two,) = copies([views[0], ViewDef("d", count, (0,), 2)])
    assert two.width == 2, "who keeps none does not make it wider"
    filtered = mir.Filter(T, functions.call("eq", col(2, INT), const(1, INT)))
    other = shown("e", mir.Join(W, some(known(filtered, 1), 3, 0, 1), ((1, 0),)), 0, 3)
    assert len(copies([views[0], other])) == 2
