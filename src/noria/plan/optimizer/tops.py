"""ORDER BY … LIMIT of a view as a TopK: of each key's rows only those are kept that a lookup can show.

    SELECT … WHERE a = ? ORDER BY x LIMIT 10 OFFSET 5
        view:     top 15 by a order x (…), looked up by a
        after:    order, limit and offset, as for any view

Keeps true: order, limit and offset still apply to the rows of a lookup, so the TopK changes what is kept and never what
is shown; also where a lookup is of several keys, because the first rows of all are among the first of each; a lookup
of fewer rows than a TopK keeps is answered by it.
"""

from __future__ import annotations

from dataclasses import replace

from noria.core.limits import TOP_ROWS
from noria.core.ranking import Order
from noria.plan.mir import Base, Join, Mir, Project, TopK, UnionAll
from noria.plan.view import ViewDef

SHARED = (64, 512, 4_096, TOP_ROWS)  # rows that an ad-hoc view keeps


def kept_top(view: ViewDef) -> ViewDef:
    """The view with just the rows kept that a lookup can show, where its LIMIT is known and small."""
    whole = view.after is not None or view.empty_row is not None or view.ranged
    if whole or view.limit is None or view.limit + view.offset > TOP_ROWS or isinstance(view.plan, TopK):
        return view
    return replace(view, plan=TopK(view.plan, view.key, view.order, view.limit + view.offset))


def shared_top(view: ViewDef) -> ViewDef:
    """For an ad-hoc view: as `kept_top` where all rows are one key's, with more rows than are asked for, so that other
    pages of them are read there, too; with a key all its rows, for any LIMIT."""
    top = kept_top(view)
    if view.key or top is view or not isinstance(top.plan, TopK):
        return view
    most = next(n for n in SHARED if n >= top.plan.limit)
    return replace(top, plan=replace(top.plan, limit=most))


def first_rows(plan: Mir, wanted: ViewDef) -> bool:
    """Does a plan keep the rows that a lookup can show of what is wanted, and perhaps some more?"""
    top = kept_top(wanted)
    if top is wanted or not isinstance(top.plan, TopK) or not isinstance(plan, TopK):
        return False
    return top_of(plan) == top_of(top.plan) and plan.limit >= top.plan.limit


def top_of(plan: TopK) -> tuple[Mir, tuple[int, ...], Order, int]:
    """What is the same of two that differ only in how many rows they keep."""
    return plan.input, plan.group, plan.order, plan.offset


def is_copy(plan: Mir) -> bool:
    """Has it all rows of its tables, or of their joins?"""
    return isinstance(plan, Base | Project | Join | UnionAll) and all(map(is_copy, plan.inputs))
