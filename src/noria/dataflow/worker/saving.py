"""Saves full states for a restart: selects the states worth saving, and restores them in a new graph.

Keeps true: a state's name is a digest of its node's operator and of all nodes above it (table numbers,
columns, plans). So another program, or an altered table, finds no state.

States are restored until the first row is written in this life, or until texts are swept. If rows were written
after the states were saved, one tick (`catch_up`) applies them. Before that tick no state is built from tables: each
state of the new graph is a saved one or empty.

`worth_saving` yields the states of a single worker; `CutStates` saves those of one of several. The engine calls
`RestorableStates.restore` for each new state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from noria.core.batch import Batch, Codes
from noria.core.codec import encoded
from noria.core.limits import SAVED_BYTES
from noria.dataflow.engine import renewal
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.runtime import SavedState
from noria.dataflow.graph.graph import ancestors, nearest
from noria.dataflow.graph.nodes import Node, NodeState
from noria.dataflow.messages import packets
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
    Empty if a state is out of service."""
    if len(engine.outages):
        return
    worth = set(_slow_to_build(engine))
    readers = [r for r in engine.readers.values() if not r.op.adhoc and r.op.saves and has_keys(engine, r)]
    if not worth and not readers:
        return
    names = names_of(engine, plan, {})
    yield from _with_ancestors(engine, worth, names)
    for n in readers:
        yield KEYS + names[n.id], 16 * n.stored.present_count(engine.reads[n]), partial(_keys_of, n)


def _slow_to_build(engine: Engine) -> Iterator[Node]:
    """The states over more rows than are built at once."""
    for n in _of_named_views(engine):
        if _can_be_saved(engine, n) and sum(m.op.size(engine, m) for m in nearest(n)) > engine.builds.at_once_rows:
            yield n


def _with_ancestors(engine: Engine, worth: set[Node], names: Mapping[int, str]) -> Iterator[Named]:
    """These states and those that they derive from, even small ones."""
    needed = set[Node]().union(*map(ancestors, worth))
    for n in engine.graph.nodes:  # its ancestors precede it
        if n in needed and _can_be_saved(engine, n):
            yield names[n.id], n.stored.memory(), partial(n.op.saved, n)


def _keys_of(reader: Node) -> Batch:
    return Batch.of(present_keys(reader))


def _can_be_saved(engine: Engine, n: Node) -> bool:
    """Whether the node has a full state that can be saved."""
    return (n.op.saves and n.full and n.readiness is NodeState.READY and n.state is not None
            and bool(n.parents) and n not in engine.builds.states)


def _of_named_views(engine: Engine) -> set[Node]:
    """The nodes of named views. A restarted worker has no ad-hoc views."""
    return {n for r in engine.readers.values() if not r.op.adhoc for n in ancestors(r)}


class CheckpointFiles(Protocol):
    """The checkpoint of one of several workers on disk (`runtime/worker/cut_checkpoints.py`)."""

    cut: str

    @property
    def is_writing(self) -> bool: ...

    def status(self, names: Collection[str]) -> dict[str, Any]: ...

    def save(self, cut: str, states: Callable[[], Iterable[Named]], names: Collection[str], at_end: bool) -> bool: ...

    def keep(self, cut: str, keep: bool) -> bool: ...

    def is_restorable(self, cut: str) -> bool: ...

    def take(self) -> tuple[States, Mapping[str, Batch]]: ...

    def started(self, restored: bool) -> None: ...


class CutStates:
    """The states that one of several workers saves and restores as of a cut (`runtime/cluster/checkpoints.py`).

    Keeps true: all workers save states of the same names. With a state they save each one that it derives from. So the
    rows that a worker sends after the cut reach a restored state through restored states only.
    """

    def __init__(self, engine: Engine, plan: Plan, files: CheckpointFiles):
        self._engine, self._plan, self.files = engine, plan, files
        engine.texts_reserved = bool(files.cut)

    def status(self) -> dict[str, Any]:
        """`names`: the states that are slow to build here, unless some are being written. `can`: whether states can be
        saved now. The rest: see `CutCheckpoints.status`."""
        engine = self._engine
        worth = [] if self.files.is_writing else list(_slow_to_build(engine))
        known = names_of(engine, self._plan(), {}) if worth else {}
        names = {known[n.id] for n in worth}
        fits = sum(n.stored.memory() for n in worth) < SAVED_BYTES
        return {"names": sorted(names), "can": fits and self._can_save(), **self.files.status(names)}

    def _can_save(self) -> bool:
        """Whether each state is complete."""
        engine = self._engine
        builds, exchanges = engine.builds, engine.exchanges
        assert exchanges is not None
        waits = engine.saved is not None and engine.saved.waits
        return not (waits or builds or builds.states or len(engine.outages)) and exchanges.has_all_rows()

    def save(self, body: packets.SaveStates) -> packets.Done:
        """Begin to save (see `packets.SaveStates`)."""
        engine = self._engine
        names = names_of(engine, self._plan(), {})
        worth = {n for n in engine.graph.nodes if names[n.id] in body.names}
        needed = {n for n in set[Node]().union(*map(ancestors, worth)) if n.op.stateful and n.parents}
        if not self._can_save() or len(worth) < len(body.names) or not all(_can_be_saved(engine, n) for n in needed):
            return packets.Done(body.request, "")
        of_all = sorted(names[n.id] for n in needed)
        begun = self.files.save(body.cut, lambda: _with_ancestors(engine, worth, names), of_all, body.at_end)
        return packets.Done(body.request, hashlib.sha256("".join(of_all).encode()).hexdigest() if begun else "")

    def keep(self, body: packets.KeepStates) -> packets.Done:
        return packets.Done(body.request, self.files.keep(body.cut, body.keep))

    def offer(self) -> None:
        """Offer the saved states to the graph that is about to be made."""
        states, deltas = self.files.take()
        self._engine.saved = RestorableStates(self._engine, states, self._plan, deltas, all_needed=True)

    def started(self, restored: bool) -> None:
        """The graph is made: texts of unrestored states are no longer needed."""
        self._engine.saved, self._engine.texts_reserved = None, False
        self.files.started(restored)


class RestorableStates:
    """States of an earlier life, until they are restored or outdated. `deltas`: the rows written since, by table.
    `all_needed`: a damaged state is an error, because other workers have restored theirs. `waits`: whether the program
    is still to be restored."""

    waits = True

    def __init__(self, engine: Engine, states: States, plan: Plan, deltas: Mapping[str, Batch],
                 all_needed: bool = False):
        self._engine, self._all_needed = engine, all_needed
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
        if name not in self._states:
            return False
        rows = self._states.pop(name)()
        if rows is None and self._all_needed:
            raise RuntimeError(f"the saved state of {node} is damaged")
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
