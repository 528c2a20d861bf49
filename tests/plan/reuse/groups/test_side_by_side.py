"""Computed values of one grouping stand side by side."""

from __future__ import annotations

from plan.examples import T, aggregates, product, total


def test_computed_values_stand_side_by_side() -> None:
    """The plain column, one product and another: one state of three sums."""
    views = [total("a", T, 1, 2), total("b", product(T, 0, 2), 1, 3), total("c", product(T, 0, 3), 1, 3)]
    (one,) = aggregates(views)
    assert len(one.aggs) == 3
