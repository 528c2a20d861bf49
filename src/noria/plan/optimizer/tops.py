"""ORDER BY … LIMIT of a view as a TopK: of each key's rows only those are kept that a lookup can show.

    SELECT … WHERE a = ? ORDER BY x LIMIT 10 OFFSET 5
        view:     top 15 by a order x (…), looked up by a
        after:    order, limit and offset, as for any view

Keeps true: order, limit and offset still apply to the rows of a lookup, so the TopK changes what is kept and never what
is shown; also where a lookup is of several keys, because the first rows of all are among the first of each.
"""

from __future__ import annotations

from dataclasses import replace

from noria.core.limits import TOP_ROWS
from noria.plan.mir import TopK
from noria.plan.view import ViewDef


def kept_top(view: ViewDef) -> ViewDef:
    """The view with just the rows kept that a lookup can show, where its LIMIT is known and small."""
    whole = view.after is not None or view.empty_row is not None or view.ranged
    if whole or view.limit is None or view.limit + view.offset > TOP_ROWS or isinstance(view.plan, TopK):
        return view
    return replace(view, plan=TopK(view.plan, view.key, view.order, view.limit + view.offset))
