"""A view as a worker publishes it: the rows of a lookup.  The front end applies order and limit."""

from __future__ import annotations

from dataclasses import replace

from noria.dataflow.messages import packets
from noria.plan.view import ViewDef


def add_view_step(view: ViewDef) -> packets.AddView:
    """Return the step that adds the view to a worker's graph."""
    return packets.AddView(replace(view, visible=columns_needed(view), order=(), after=None, asks=None))


def columns_needed(view: ViewDef) -> int:
    """How many leading columns a lookup must return: the visible ones and those it orders by.

    All columns, if further operations follow the lookup.
    """
    if view.after is not None:
        return view.plan.width
    return max([view.visible, *(column + 1 for column, _ in view.order)])
