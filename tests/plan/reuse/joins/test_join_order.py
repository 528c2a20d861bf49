"""Joins of the same relations are one, in whatever order they are written."""

from __future__ import annotations

from noria.plan import mir
from noria.plan.reuse.joins.join_order import joined
from noria.plan.view import ViewDef
from plan.examples import T, U, W, aggregates, joins, total


def test_joins_in_any_order_are_one() -> None:
    """t, u and w in three orders, with the pairs said in two ways: one state of one sum, over two joins."""
    tu = mir.Join(T, U, ((0, 1),))
    orders = {"a": total("a", mir.Join(tu, W, ((3, 1),)), 1, 5),
              "b": total("b", mir.Join(mir.Join(U, W, ((0, 1),)), T, ((1, 0),)), 6, 2),
              "c": total("c", mir.Join(W, mir.Join(U, T, ((1, 0),)), ((1, 0),)), 6, 4)}
    (one,) = aggregates([*orders.values()])
    assert [a.function for a in one.aggs] == ["sum"] and len(joins([*orders.values()])) == 2
    assert joined(one.input).joined == joined(orders["a"].plan.inputs[0]).joined
    assert joined(one.input).joined == joined(orders["c"].plan.inputs[0]).joined
    other = mir.Join(T, mir.Join(U, W, ((0, 1),)), ((1, 1),))  # t.x for t.id
    assert joined(other).joined != joined(orders["a"].plan.inputs[0]).joined
    assert len(aggregates([*orders.values(), total("d", other, 1, 5)])) == 2


def test_what_is_equal_counts_and_not_by_which_pairs() -> None:
    ab, ac, bc = mir.Join(T, U, ((0, 1),)), ((0, 1),), ((4, 1),)
    assert joined(mir.Join(ab, W, ac)) == joined(mir.Join(ab, W, bc))
    safe = mir.Join(ab, W, ac, null_safe=(0,))
    assert joined(safe) is None and joined(mir.Join(ab, W, ac, outer=True)) is None


def test_a_table_that_is_joined_with_itself() -> None:
    """Which of the two it is does not follow from what it is."""
    def child(left: mir.Mir, on: tuple[int, int], by: int, of: int) -> ViewDef:
        return total(f"v{on}{by}", mir.Join(left, U, (on,)), by, of)

    same = [child(U, (0, 1), 2, 5), child(U, (1, 0), 5, 2)]  # z of the parent, sum of the child's: twice
    (one,) = aggregates(same)
    assert len(one.aggs) == 1
    assert len(aggregates([same[0], child(U, (1, 0), 2, 5)])) == 2  # and of the child, sum of the parent's
