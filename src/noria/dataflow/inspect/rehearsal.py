"""Describes what a change of the program would do to one worker's graph, without doing it (section 5).

`rehearse` lowers the new views onto the present graph, plans a layout for the nodes that would exist, and removes the
new nodes again. Keeps true: no state, index or build changes. A layout is a pure function of the graph, and the new
nodes have no state.

Bytes are estimates. A state is assumed to have as many rows as the largest table that it derives from: groups
have fewer, joins may have more. Each row counts 8 bytes a column, its identity and its index entries. Texts are
stored once and not counted. Partial states begin empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from noria.core.errors import SqlError, table_exists
from noria.core.errors.codes import NOT_SUPPORTED_YET
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph import layout
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import Node
from noria.dataflow.messages.rehearsal import IndexPlan, NodePlan, Rehearsal, ViewPlan
from noria.dataflow.ops.stateful.base import Base
from noria.plan.describing import named
from noria.plan.view import ViewDef
from noria.state.rows.layout import ENTRY

WORD = 8
_BESIDE = re.compile(r"\0\d+")  # in the name of a view that is made beside another one
_NUMBER = re.compile(r"^n\d+(?= below it)")  # of a node that will have another number


class RehearsalPlanner(Protocol):
    """The part of the planner (`changes.GraphPlanner`) that a rehearsal needs."""

    def try_view(self, view: Any) -> None: ...

    def remove_trial_view(self, name: str) -> None: ...

    def top(self, view: str) -> Node | None:
        """The node of a view's rows, or None."""

    def names(self) -> Iterable[str]:
        """The views in the graph."""


def rehearse(engine: Engine, planner: RehearsalPlanner, views: Sequence[ViewDef], dropped: Iterable[str]) -> Rehearsal:
    """Describe a change that adds `views`, whose names must be free, and drops `dropped`."""
    before, first_id = set(engine.graph.nodes), engine.graph.next_id
    tried: list[str] = []
    try:
        for view in views:
            if view.name in planner.names():
                raise table_exists(view.name)
            tried.append(view.name)
            planner.try_view(view)
        return _described(engine, planner, [v.name for v in views], set(dropped), before)
    except ValueError as e:
        raise SqlError(*NOT_SUPPORTED_YET, str(e)) from e
    finally:
        for name in [n for n in reversed(tried) if n in planner.names()]:
            planner.remove_trial_view(name)
        engine.graph.next_id = first_id


def _described(engine: Engine, planner: RehearsalPlanner, views: Sequence[str], dropped: set[str], before: set[Node]
               ) -> Rehearsal:
    leaves = {name: engine.readers.get(name) or planner.top(name) for name in views}
    readers = [r for name, r in engine.readers.items() if name not in dropped]
    needed = {m for leaf in (*readers, *leaves.values(), *_without_reader(engine, planner, dropped)) if leaf is not None
              for m in ancestors(leaf)}
    nodes = [n for n in engine.graph.nodes if n in needed]
    plan = layout.plan(nodes, [(r, engine.reads[r]) for r in readers], [n for n in nodes if n.full], engine.ranged)
    view_plans = tuple(ViewPlan(name, tuple(_node(engine, n, plan, n not in before) for n in ancestors(leaf)))
                       for name, leaf in leaves.items() if leaf is not None)
    freed = [n for n in engine.graph.nodes if n not in needed]
    known = engine.store.tables()
    return Rehearsal(view_plans, tuple(_indexes(engine, plan, nodes)), len(freed),
                     sum(n.stored.memory() for n in freed if n.op.stateful and n.state is not None),
                     {t: engine.store.row_count(t) for t in known})


def _without_reader(engine: Engine, planner: RehearsalPlanner, dropped: set[str]) -> Iterable[Node | None]:
    return [planner.top(name) for name in planner.names() if name not in dropped and name not in engine.readers]


def _node(engine: Engine, n: Node, plan: layout.Layout, new: bool) -> NodePlan:
    does = _BESIDE.sub("", named(n.op.describe(), [f for p in n.parents for f in p.fields]))
    if not n.op.stateful:
        return NodePlan(does, new, "none", "", False, 0, 0)
    if not n.parents:
        return NodePlan(does, new, "disk", "", False, _rows(engine, n), 0)
    if n not in plan.full:
        return NodePlan(does, new, "partial", "", False, 0, 0 if n.state is None else n.stored.memory())
    filled = not n.full
    rows = [_rows(engine, m) for m in ancestors(n) if not m.parents]
    nbytes = _estimate(n, max(rows, default=0), list(plan.indexes[n])) if filled else n.stored.memory()
    return NodePlan(does, new, "full", _NUMBER.sub("what is", plan.full[n]), filled, sum(rows), nbytes)


def _rows(engine: Engine, base: Node) -> int:
    assert isinstance(base.op, Base)
    name = base.op.table.name
    return engine.store.row_count(name) if name in engine.store.tables() else 0


def _estimate(n: Node, rows: int, indexes: Sequence[tuple[int, ...]]) -> int:
    """Estimate bytes: a row has its columns, its weight and two hash slots, and in each index an entry, two slots
    and two links."""
    words = n.width + 3 + sum(ENTRY + len(cols) + 4 for cols in indexes)
    return WORD * words * rows


def _indexes(engine: Engine, plan: layout.Layout, nodes: Iterable[Node]) -> Iterable[IndexPlan]:
    known, seen = engine.store.tables(), set[tuple[str, tuple[int, ...]]]()
    for n in nodes:
        if n.parents or not isinstance(n.op, Base) or n.op.table.name not in known:
            continue
        name = n.op.table.name
        for cols in sorted(c for c in plan.pulled.get(n, ()) if c):
            had = max(cols) < len(known[name].columns) and engine.store.serves(name, cols)
            if not had and (name, cols) not in seen:
                seen.add((name, cols))
                yield IndexPlan(name, tuple(n.fields[c].name for c in cols), engine.store.row_count(name))
