"""The graph as data.  A worker sends it to a restarted worker, and keeps it to undo a failed change.

Keeps true: a graph made from it has the same nodes with the same numbers, whatever was planned, dropped and shared
before.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.state.rows.table import Columns


@dataclass(frozen=True)
class SingleNode:
    """The only node of a plan node."""

    plan: Mir


@dataclass(frozen=True)
class PartialNode:
    """The part of a plan node that each worker computes before the exchange (`Operator.in_parts`)."""

    plan: Mir


@dataclass(frozen=True)
class FinalNode:
    """The part of a plan node that is computed after the exchange; it has the plan node's rows."""

    plan: Mir


@dataclass(frozen=True)
class KeepNode:
    """A `Keep` of its parent."""


@dataclass(frozen=True)
class ExchangeNode:
    """An exchange of its parent's rows, hashed by these columns."""

    by: Columns


@dataclass(frozen=True)
class ReaderNode:
    """The reader of a view."""

    view: str


@dataclass(frozen=True)
class PlannedNode:
    """One node of the graph.  `full`: whether every worker must keep it full."""

    id: int
    what: SingleNode | PartialNode | FinalNode | KeepNode | ExchangeNode | ReaderNode
    parents: tuple[int, ...]
    full: bool


@dataclass(frozen=True)
class GraphPlan:
    """The graph of a worker.  `nodes`: in the graph's order.  `plans`: the views' plans as they are in the graph, by
    name.  `instead`, `members`: the data of `SharedNodes`."""

    nodes: tuple[PlannedNode, ...]
    next_id: int
    views: tuple[ViewDef, ...]
    plans: dict[str, Mir]
    instead: dict[Mir, Mir]
    members: dict[Mir, frozenset[Mir]]


def same_nodes(now: GraphPlan, then: GraphPlan) -> dict[int, PlannedNode] | None:
    """For each node number of `now`, the equal node of `then`; None if the graphs differ."""
    known = {(p.what, p.parents): p for p in then.nodes}
    found: dict[int, PlannedNode] = {}
    for p in now.nodes:
        same = known.pop((p.what, tuple(found[i].id for i in p.parents)), None)
        if same is None:
            return None
        found[p.id] = same
    return None if known else found
