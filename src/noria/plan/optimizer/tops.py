"""Adds a TopK for a view's ORDER BY … LIMIT, so that only the rows that a lookup can show are kept for each key.

    SELECT … WHERE a = ? ORDER BY x LIMIT 10 OFFSET 5
        view:     top 15 by a order x (…), looked up by a
        after:    order, limit and offset, as for any view

Keeps true: a TopK changes the kept rows, never the shown ones, because order, limit and offset still apply to each
lookup.  This holds for a lookup of several keys, too: the first rows of all keys are among the first of each.  A view
with a TopK also answers lookups of fewer rows.
"""

from __future__ import annotations

from dataclasses import replace

from noria.core.limits import TOP_ROWS
from noria.core.ranking import Order
from noria.plan.mir import Base, Join, Mir, Project, TopK, UnionAll
from noria.plan.view import ViewDef

SHARED = (64, 512, 4_096, TOP_ROWS)  # the numbers of rows that an ad-hoc view may keep


def kept_top(view: ViewDef) -> ViewDef:
    """Keep only the rows that a lookup can show, if the view's LIMIT is known and at most TOP_ROWS."""
    needs_all_rows = view.after is not None or view.empty_row is not None or view.ranged
    if needs_all_rows or view.limit is None or view.limit + view.offset > TOP_ROWS or isinstance(view.plan, TopK):
        return view
    return replace(view, plan=TopK(view.plan, view.key, view.order, view.limit + view.offset))


def shared_top(view: ViewDef) -> ViewDef:
    """`kept_top` for an ad-hoc view.  Without a key, it keeps the next larger number of rows in SHARED, so that other
    pages are read from the same view.  With a key, it keeps all rows, for any LIMIT."""
    top = kept_top(view)
    if view.key or top is view or not isinstance(top.plan, TopK):
        return view
    most = next(n for n in SHARED if n >= top.plan.limit)
    return replace(top, plan=replace(top.plan, limit=most))


def first_rows(plan: Mir, wanted: ViewDef) -> bool:
    """Whether the plan is a TopK that keeps all rows that a lookup of the wanted view can show."""
    top = kept_top(wanted)
    if top is wanted or not isinstance(top.plan, TopK) or not isinstance(plan, TopK):
        return False
    return top_of(plan) == top_of(top.plan) and plan.limit >= top.plan.limit


def top_of(plan: TopK) -> tuple[Mir, tuple[int, ...], Order, int]:
    """The parts of a TopK that are equal in two that differ only in their number of rows."""
    return plan.input, plan.group, plan.order, plan.offset


def is_copy(plan: Mir) -> bool:
    """Whether the plan has all rows of its tables, joins and unions: it filters and groups nothing."""
    return isinstance(plan, Base | Project | Join | UnionAll) and all(map(is_copy, plan.inputs))
