"""Full states over an orderly end: which are worth saving, and their way back into a graph that is made anew.

Keeps true: a state is named by what its node does and by all that it derives from (table numbers, columns, plans), so
another program, or an altered table, finds none; and it is given only until the first row is written in this life, or
strings that no state holds are freed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from noria.core.batch import Batch
from noria.core.codec import encoded
from noria.dataflow.graph import Node, ancestors, nearest

if TYPE_CHECKING:
    from noria.dataflow.engine import Engine

Named = tuple[str, int, Callable[[], Batch]]  # bytes, about
States = Mapping[str, Callable[[], Batch | None]]  # by name; None: damaged
Plan = Callable[[], Any]  # the graph as data (`plan/graph_plan.py`)


def names_of(engine: Engine, plan: Any, names: dict[int, str]) -> dict[int, str]:
    """By a node's number what names its state; names: those that are known already, which get the others."""
    nodes = {n.id: n for n in engine.graph.nodes}
    for p in plan.nodes:
        if p.id not in names:
            node = nodes[p.id]
            about = [encoded(p.what), node.op.describe().encode(), str(node.width).encode(),
                     *(names[parent].encode() for parent in p.parents)]
            names[p.id] = hashlib.sha256(b"\0".join(about)).hexdigest()
    return names


def worth_saving(engine: Engine, plan: Any) -> Iterator[Named]:
    """Full states that took long to make; of one worker, nothing of which is out of service."""
    if engine.shards is not None or len(engine.outages):
        return
    names, wanted = names_of(engine, plan, {}), _of_named_views(engine)
    for n in engine.graph.nodes:
        whole = n.full and n.live and not n.inert and n.stash is None and n not in engine.builds.states
        if not (n.op.saves and whole and n.state is not None and n in wanted):
            continue
        if sum(m.op.size(engine, m) for m in nearest(n)) > engine.builds.at_once_rows:
            yield names[n.id], n.stored.memory(), partial(n.op.saved, n)


def _of_named_views(engine: Engine) -> set[Node]:
    """Ad-hoc views are not there when a worker starts again."""
    return {n for r in engine.readers.values() if not r.op.adhoc for n in ancestors(r)}


class Saved:
    """States of an earlier life, until they are given or worthless.  waits: for the program, which is yet to come."""

    waits = True

    def __init__(self, states: States, plan: Plan):
        self._states, self._plan = dict(states), plan
        self._names: dict[int, str] = {}
        self.given = 0

    def give(self, engine: Engine, node: Node) -> bool:
        """The node's state, if it was saved; it has none yet."""
        if not self._states or not node.op.saves:
            return False
        name = names_of(engine, self._plan(), self._names)[node.id]
        rows = self._states.pop(name)() if name in self._states else None
        if rows is None:
            return False
        node.op.restore(engine, node, rows)
        self.given += 1
        return True
