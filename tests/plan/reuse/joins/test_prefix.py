"""A join begins with a smaller one that another view has, where its order may change."""

from __future__ import annotations

from itertools import permutations

from dataflow.engine_rig import Rig
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import INT
from noria.plan import mir
from noria.plan.view import ViewDef
from plan.examples import UT, UW, T, U, W, copies, joins, product, shown


def test_a_prefix_of_a_larger_join_is_one_node() -> None:
    """u with its t and its ws, beside u with its t: w comes last.  Which is the left side does not matter."""
    larger = shown("larger", mir.Join(UW, T, ((1, 0),)), 0, 7, 4)
    for small in (UT, mir.Join(T, U, ((0, 1),))):
        alone = [*joins([larger]), *joins([shown("small", small, 1, 2)])]
        assert len(alone) == 3
        rig = Rig([t.table for t in (T, U, W)], [])
        for v in (larger, shown("small", small, 1, 2)):
            rig.add_view(v)
        first, second = (m for m in rig.lowering.made if isinstance(m, mir.Join))
        assert {first.left, first.right} == {T, U} and (second.left, second.right) == (first, W)
        assert rig.lowering.made[first].reuse == "one join instead of 2, of t, u; of t, u, w"


def test_a_left_join_goes_after_an_inner_one() -> None:
    larger = shown("larger", mir.Join(mir.Join(U, W, ((0, 1),), True), T, ((1, 0),)), 0, 7, 4)
    first, second = joins([larger, shown("small", UT, 1, 2)])
    assert first == UT and second.outer and (second.left, second.right) == (UT, W)


def test_joins_stay_in_their_order() -> None:
    """Where the other one may find many rows, or leaves some out, or looks at what the first finds, or where columns
    would be put in order by one more node, or may hold errors."""
    some = mir.Filter(W, functions.call("eq", col(1, INT), const(1, INT)))
    t = ((1, 0),)
    for larger, small in [
            (shown("larger", mir.Join(UT, W, ((0, 1),)), 0, 7), shown("small", UW, 0, 2)),
            (shown("larger", mir.Join(mir.Join(U, some, ((0, 1),)), T, t), 0, 7), shown("small", UT, 0, 2)),
            (ViewDef("larger", mir.Join(UW, T, t), (0,), 8), shown("small", UT, 0, 2)),
            (shown("larger", mir.Join(product(UW, 0, 2), T, t), 0, 7), shown("small", UT, 0, 2))]:
        assert len(joins([larger, small])) == 3


def test_joins_stay_in_their_order_where_the_other_would_need_a_copy() -> None:
    """Groups by columns of both: after a left join whose right side has one of them, its rows would be kept."""
    left = mir.Join(U, W, ((1, 0),), True)
    plan = mir.Join(mir.Join(U, T, ((0, 0),)), W, ((1, 0),), True)  # id, t, z, id, x, y, id, u
    both = ViewDef("both", mir.Aggregate(plan, (7, 4), (mir.agg("max", 0, plan.fields),), ("m",)), (1,), 3)
    assert not copies([both, shown("left", left, 0, 4)])


def test_what_a_join_keeps_of_another_is_kept_once() -> None:
    """By w's u, which may be NULL because there is no w, rows are found in a copy of them only."""
    uw = mir.Join(U, W, ((1, 0),), True)  # id, t, z, id, u
    utw = mir.Join(mir.Join(U, T, ((0, 0),), True), W, ((1, 0),), True)
    views = [shown("first", mir.Join(uw, T, ((4, 0),)), 0, 6),
             shown("second", mir.Join(mir.Join(uw, T, ((0, 0),), True), T, ((4, 0),), True), 0, 6, 9),
             shown("third", mir.Join(utw, U, ((7, 0),)), 0, 9)]
    assert all(len(copies(some)) == 1 for some in [*([v] for v in views), *permutations(views)])
