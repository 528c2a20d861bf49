"""The graph as data, which a worker sends to a restarted one.

So both have the same nodes with the same numbers, whatever was planned, dropped and shared before.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.state.table import Columns


@dataclass(frozen=True)
class Made:
    """A node of a plan node."""

    plan: Mir


@dataclass(frozen=True)
class Part:
    """What each worker does of a plan node before the exchange (`Operator.in_parts`)."""

    plan: Mir


@dataclass(frozen=True)
class Whole:
    """What is done of it after the exchange: the node of this plan node."""

    plan: Mir


@dataclass(frozen=True)
class Kept:
    """A `Keep` of its only parent."""


@dataclass(frozen=True)
class Exchanged:
    """Its only parent's rows, hashed by these columns."""

    by: Columns


@dataclass(frozen=True)
class Read:
    """The reader of a view."""

    view: str


@dataclass(frozen=True)
class PlannedNode:
    """full: is it to be, on every worker?"""

    id: int
    what: Made | Part | Whole | Kept | Exchanged | Read
    parents: tuple[int, ...]
    full: bool


@dataclass(frozen=True)
class GraphPlan:
    """nodes: in the graph's order.  plans: of the views, as they are in the graph.  instead, members: what `Sharing`
    knows."""

    nodes: tuple[PlannedNode, ...]
    next_id: int
    views: tuple[ViewDef, ...]
    plans: dict[str, Mir]
    instead: dict[Mir, Mir]
    members: dict[Mir, frozenset[Mir]]


def same_nodes(now: GraphPlan, then: GraphPlan) -> dict[int, PlannedNode] | None:
    """Of each node of `now`, by its number, which of `then` it is; None where they are different graphs."""
    known = {(p.what, p.parents): p for p in then.nodes}
    found: dict[int, PlannedNode] = {}
    for p in now.nodes:
        same = known.pop((p.what, tuple(found[i].id for i in p.parents)), None)
        if same is None:
            return None
        found[p.id] = same
    return None if known else found
