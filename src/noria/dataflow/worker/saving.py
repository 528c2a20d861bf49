"""Saves full states for a restart: selects the states worth saving, and restores them in a new graph.

Keeps true: a state's name is a digest of its node's operator and of all nodes above it (table numbers,
columns, plans). So another program, or an altered table, finds no state.

States are restored until the first row is written in this life, or until texts are swept. If rows were written
after the states were saved, one tick (`catch_up`) applies them. Before that tick no state is built from tables: each
state of the new graph is a saved one or empty.

`worth_saving` yields the states to save. The engine calls `RestorableStates.restore` for each new state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from noria.core.batch import Batch, Codes
from noria.core.codec import encoded
from noria.dataflow.engine import renewal
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.runtime import SavedState
from noria.dataflow.graph.graph import ancestors, nearest
from noria.dataflow.graph.nodes import Node, NodeState
from noria.dataflow.worker.refill import Refill, has_keys, present_keys

KEYS = "keys:"
Named = tuple[str, int, Callable[[], Batch]]  # the state's name, its size in bytes (estimate), and its rows
States = Mapping[str, Callable[[], Batch | None]]  # by name; None: damaged
Plan = Callable[[], Any]  # the graph as data (`plan/graph_plan.py`)


def names_of(engine: Engine, plan: Any, names: dict[int, str]) -> dict[int, str]:
    """The names of states by node number. `names`: those already known, to which the others are added."""
    nodes = {n.id: n for n in engine.graph.nodes}
    for p in plan.nodes:
        if p.id not in names:
            node = nodes[p.id]
            about = [encoded(p.what), node.op.describe().encode(), str(node.width).encode(),
                     *(names[parent].encode() for parent in p.parents)]
            names[p.id] = hashlib.sha256(b"\0".join(about)).hexdigest()
    return names


def worth_saving(engine: Engine, plan: Any) -> Iterator[Named]:
    """Full states that are slow to build, and the present keys of partial views (with KEYS before their names).
    Empty for one of several workers, or if a state is out of service."""
    if engine.exchanges is not None or len(engine.outages):
        return
    worth = {n for n in _of_named_views(engine) if _can_be_saved(engine, n)
             and sum(m.op.size(engine, m) for m in nearest(n)) > engine.builds.at_once_rows}
    readers = [r for r in engine.readers.values() if not r.op.adhoc and r.op.saves and has_keys(engine, r)]
    if not worth and not readers:
        return
    names, needed = names_of(engine, plan, {}), set[Node]().union(*map(ancestors, worth))
    for n in engine.graph.nodes:  # its ancestors precede it, even small ones
        if n in needed and _can_be_saved(engine, n):
            yield names[n.id], n.stored.memory(), partial(n.op.saved, n)
    for n in readers:
        yield KEYS + names[n.id], 16 * n.stored.present_count(engine.reads[n]), partial(_keys_of, n)


def _keys_of(reader: Node) -> Batch:
    return Batch.of(present_keys(reader))


def _can_be_saved(engine: Engine, n: Node) -> bool:
    """Whether the node has a full state that can be saved."""
    return (n.op.saves and n.full and n.readiness is NodeState.READY and n.state is not None
            and bool(n.parents) and n not in engine.builds.states)


def _of_named_views(engine: Engine) -> set[Node]:
    """The nodes of named views. A restarted worker has no ad-hoc views."""
    return {n for r in engine.readers.values() if not r.op.adhoc for n in ancestors(r)}


class RestorableStates:
    """States of an earlier life, until they are restored or outdated. `deltas`: the rows written since, by table.
    `waits`: whether the program is still to be restored."""

    waits = True

    def __init__(self, engine: Engine, states: States, plan: Plan, deltas: Mapping[str, Batch]):
        self._engine = engine
        self._states, self._plan = dict(states), plan
        self.deltas: Mapping[str, Batch] = deltas
        self._names: dict[int, str] = {}
        self.build_later: list[Node] = []  # nodes whose state is built after the deltas

    @property
    def lacks_rows(self) -> bool:
        """Whether the states lack rows that the tables have."""
        return bool(self.deltas)

    def restore(self, node: Node) -> bool:
        """Restore the state of a node that has none. Returns whether it was saved."""
        if not self._states or not node.op.saves:
            return False
        name = names_of(self._engine, self._plan(), self._names)[node.id]
        rows = self._states.pop(name)() if name in self._states else None
        if rows is None:
            return False
        node.op.restore(self._engine, node, rows)
        self._engine.restored += 1
        return True

    def keys(self) -> dict[str, Codes]:
        """The saved keys of partial views, by view."""
        if not any(name.startswith(KEYS) for name in self._states):
            return {}
        names, by_view = names_of(self._engine, self._plan(), self._names), {}
        for view, reader in self._engine.readers.items():
            saved = self._states.pop(KEYS + names[reader.id], None)
            if saved is not None and (rows := saved()) is not None:
                by_view[view] = rows.columns
        return by_view


def catch_up(engine: Engine, saved: SavedState) -> None:
    """After the program is restored: apply the rows written since the states were saved in one tick. Then begin
    the states that were not saved, and the refill of partial views."""
    saved.waits = False
    keys = saved.keys()
    engine.refill = Refill(engine, keys) if keys else None
    if not saved.lacks_rows:
        return
    deltas, saved.deltas = saved.deltas, {}
    engine.tick(deltas)
    for node in [n for n in engine.graph.nodes if n in saved.build_later]:
        engine.builds.drop(node)
        renewal.rebuild(engine, node, at_once=True, large=engine.large)
    engine.builds.update_readiness()
