"""Lowers MIR to the data-flow graph: one operator for each plan node, shared among equal nodes (section 5.1).

Keeps true: equal plan nodes have one graph node.  Every input in which a node looks up rows supports that lookup; if
the columns do not trace to a state, a `Keep` is inserted.

Before the graph is laid out, plans are rewritten so that they share nodes (`plan/reuse/`).  All new views, and all
views without state, are rewritten together, so their order does not matter.  The plan of a view in use does not
change; other views may share its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from noria.core.errors import InvariantViolation, SqlError
from noria.core.errors.codes import NOT_SUPPORTED_YET
from noria.core.types import TableDef
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph import layout
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import UNREADY, Columns, Node, Operator, Untraceable
from noria.dataflow.graph.partition import ONE
from noria.dataflow.graph.published import view_of
from noria.dataflow.ops.stateful.base import Base
from noria.dataflow.ops.stateful.exchange import Exchange
from noria.dataflow.ops.stateful.keep import Keep
from noria.dataflow.ops.stateful.reader import Reader
from noria.lowering.operators import OPERATORS, parts_of, reader_of
from noria.plan import mir
from noria.plan.graph_plan import (
    ExchangeNode,
    FinalNode,
    GraphPlan,
    KeepNode,
    PartialNode,
    PlannedNode,
    ReaderNode,
    SingleNode,
    same_nodes,
)
from noria.plan.optimizer import error_reporting_view, of_parts
from noria.plan.reuse import SharedNodes, UnsharedLayout, related, sources
from noria.plan.uses import columns_used, outdated
from noria.plan.view import ViewDef

ONE_SHOT_PLANS = 256  # SELECTs whose nodes are kept
OneShotNodes = tuple[ViewDef, Node, dict[Node, Node], dict[Node, set[int]]]


class Lowering:
    """Adds plans to an engine's graph and removes them.  `reuse`: whether to share beyond equality."""

    def __init__(self, engine: Engine, reuse: bool = True):
        self.engine = engine
        self.made: dict[mir.Mir, Node] = {}
        self._kept: dict[Node, Node] = {}  # input -> the Keep above it
        self._exchanged: dict[tuple[Node, Columns], Node] = {}  # input and columns -> the exchange
        self._parts: dict[mir.Mir, Node] = {}  # the nodes that each worker computes before an exchange
        self.views: dict[str, ViewDef] = {}
        self._sharing = SharedNodes(self._full_alone) if reuse else None
        self._plans: dict[str, mir.Mir] = {}  # the views' plans as they are in the graph
        self._full: set[Node] = set()  # with several workers: the nodes that every worker must keep full
        self._one_shots: dict[int, tuple[ViewDef, OneShotNodes]] = {}  # by id; valid while the graph is the same
        self._one_shots_at = 0  # `Graph.changes` when they were made
        self._changed: set[mir.Mir] | None = None  # the sources of added and dropped views; None: no change

    def node(self, m: mir.Mir) -> Node:
        """The graph node of a plan node; made if it does not exist."""
        if m in self.made:
            return self.made[m]
        op, no_lookups = OPERATORS[type(m)](m), [None] * len(m.inputs)
        inputs: Iterable[Node] = map(self.node, m.inputs)
        if self.engine.exchanges is not None and (parts := op.in_parts()) is not None:
            inputs = list(inputs)
            if op.partition([i.parts for i in inputs]).inputs != (None,):
                part, op = parts
                self._parts[m] = self._added(part, inputs, part.lookups() or no_lookups)
                inputs = [self._parts[m]]
        node = self._added(op, inputs, op.lookups() or no_lookups)
        if isinstance(m, mir.Base):
            self.engine.bases.setdefault(m.table.name, []).append(node)
        self.made[m] = node
        return node

    def _added(self, op: Operator, inputs: Iterable[Node], lookups: Sequence[Columns | None]) -> Node:
        """Add a node over these inputs, with the exchanges and Keeps that it needs between.  `lookups`: the columns by
        which it looks up each input."""
        if self.engine.exchanges is not None:
            inputs = list(inputs)
            partition = op.partition([i.parts for i in inputs])
            inputs = [self._exchange(i, by) for i, by in zip(inputs, partition.inputs, strict=True)]
        return self._joined(op, [self._able(i, cols) for i, cols in zip(inputs, lookups, strict=True)])

    def _joined(self, op: Operator, parents: Sequence[Node]) -> Node:
        """Add a node with exactly these parents."""
        node = self.engine.graph.add(op, parents)
        if self.engine.exchanges is not None:
            node.parts = op.partition([p.parts for p in parents]).output
            node.all_remote = node.parts == ONE and self.engine.exchanges.worker != 0
        return node

    def _exchange(self, node: Node, by: Columns | None) -> Node:
        """The node's rows, hashed by these columns."""
        if by is None:
            return node
        if (node, by) not in self._exchanged:
            self._exchanged[node, by] = self._added(Exchange(node.fields, by), [node], [None])
        return self._exchanged[node, by]

    def _able(self, node: Node, cols: Columns | None) -> Node:
        """The node itself if its rows can be looked up by `cols`, else a `Keep` of it.  If `cols` is empty, the node
        itself if it has a state in memory."""
        if cols is None or (traceable(node, cols) if cols else node.op.stateful and bool(node.parents)):
            return node
        if node not in self._kept:
            self._kept[node] = self._added(Keep(node.fields), [node], [None])
        return self._kept[node]

    def add_view(self, view: ViewDef) -> None:
        """Add a view, whose rows carry the errors of its conditions.  `replan` makes its nodes later."""
        self.views[view.name] = self._reporting_errors(view)
        self._note_change(view.name)

    def _reporting_errors(self, view: ViewDef) -> ViewDef:
        """The view in the form in which it enters the graph."""
        return error_reporting_view(view if self.engine.exchanges is None else of_parts(view))

    def replan(self) -> None:
        """Make the nodes of all views and remove unneeded ones.  The views that are related to a change and not in use
        are planned again, as one set.  Call it before `Engine.relayout`."""
        if self._changed is None:
            return
        concerned = {v.name for v in related(list(self.views.values()), self._changed)}
        self._changed = None
        free = [v for name, v in self.views.items()
                if name not in self._plans or (name in concerned and self._may_change(v))]
        if self._sharing is None:
            plans = {v.name: v.plan for v in free}
        else:
            names = {v.name for v in free}
            stay = [p for name, p in self._plans.items() if name not in names]
            plans = self._sharing.plans(free, stay, lambda m: self._is_full(self.made[m]))
        for view in free:
            if self._plans.get(view.name) != plans[view.name]:
                self._lower(view, plans[view.name])
        self._sweep()
        if self.engine.exchanges is not None:
            engine = self.engine
            full = [n for n in engine.graph.nodes if n in self._full]
            self._full = set(layout.plan(engine.graph.nodes, engine.reads.items(), full, engine.ranged).full)
        for node in self.engine.graph.nodes:
            node.reuse, node.plan_shares = "", ()
        for m, text, parts in () if self._sharing is None else self._sharing.descriptions():
            if m in self.made:
                node = self.made[m]
                node = self._kept.get(node, node) if isinstance(m, mir.Project) else node
                node.reuse, node.plan_shares = text, parts

    def try_view(self, view: ViewDef) -> None:
        """Make the nodes of a view that `remove_trial_view` removes again.  It shares existing nodes; no other view
        changes."""
        view = self.views[view.name] = self._reporting_errors(view)
        self._lower(view, view.plan if self._sharing is None else self._sharing.over_standing(view.plan))

    def remove_trial_view(self, name: str) -> None:
        """Remove a view and the nodes that no other view needs; other views are not planned again."""
        del self.views[name]
        self._plans.pop(name, None)
        if name in self.engine.readers:
            self._drop_reader(name)
        self._sweep()

    def planned(self, view: str) -> mir.Mir:
        """The view's plan in the graph."""
        return self._plans[view]

    def _note_change(self, view: str) -> None:
        self._changed = (self._changed or set()) | sources(self.views[view].plan)

    def _lower(self, view: ViewDef, plan: mir.Mir) -> None:
        top = self.node(plan)
        self._plans[view.name] = plan
        if view.internal and not view.feed:
            return
        node = self.engine.readers.get(view.name)
        if node is not None and not node.full and self.engine.exchanges is None:
            self.engine.graph.move(node, [top])
            return
        if node is not None:
            self._drop_reader(view.name)
        by = None
        if self.engine.exchanges is not None:
            (by,) = reader_of(view).partition([top.parts]).inputs
        self._reader(view, [self._exchange(top, by)])

    def _reader(self, view: ViewDef, parents: Sequence[Node]) -> Node:
        node = self._joined(reader_of(view), parents)
        self.engine.readers[view.name] = node
        self.engine.reads[node] = view.key
        if view.ranged:
            self.engine.ranged.add(node)
        return node

    def _is_idle(self, view: ViewDef) -> bool:
        """Whether the view has no state yet: a partial view no key, a full one no rows in its tables, and no build."""
        reader = self.engine.readers.get(view.name)
        if reader is None:
            return True
        above, builds = ancestors(reader), self.engine.builds
        if any(n.readiness in UNREADY or n in builds.states or n in builds.dormant for n in above):
            return False
        if reader.full:
            return not any(n.op.size(self.engine, n) for n in above if not n.parents)
        ranges = any(len(r.starts) for r in reader.ranges.values())
        return reader.state is None or not (ranges or reader.state.present_count(view.key))

    def _may_change(self, view: ViewDef) -> bool:
        """Whether the view can be planned again.  Never with several workers: each knows only its own part."""
        return self.engine.exchanges is None and self._is_idle(view)

    def is_idle(self, view: str) -> bool:
        """Whether nothing has been read from the view on this worker yet."""
        return view in self.views and self._is_idle(self.views[view])

    def _is_full(self, node: Node) -> bool:
        """Whether the node is full.  With several workers, whether it must be: all of them must plan alike, whatever
        their states."""
        return node.full if self.engine.exchanges is None else node in self._full

    def _full_alone(self, view: ViewDef, plan: mir.Mir) -> UnsharedLayout:
        """Lay out a program of this view alone, with this plan (see `reuse.sharing.UnsharedLayout`)."""
        mine = self.engine
        alone = Lowering(Engine(mine.store, mine.symbols, mine.views), reuse=False)
        alone._lower(view, plan)
        full = layout.plan(alone.engine.graph.nodes, alone.engine.reads.items(), (), alone.engine.ranged).full
        reader = alone.engine.readers[view.name]
        return UnsharedLayout(frozenset(m for m, n in alone.made.items() if n in full), reader not in full,
                              len(alone._kept))

    def one_shot(self, view: ViewDef) -> OneShotNodes:
        """Return nodes outside the graph, for reads of a view that is not in it.

        Returns the view with errors carried, the node of its rows, the equal graph nodes of these nodes, and the used
        columns of the base tables.  A SELECT that is repeated gets the same nodes while the graph is the same.
        """
        if self._one_shots_at != self.engine.graph.changes or len(self._one_shots) >= ONE_SHOT_PLANS:
            self._one_shots, self._one_shots_at = {}, self.engine.graph.changes
        known = self._one_shots.get(id(view))
        if known is None or known[0] is not view:
            known = self._one_shots[id(view)] = view, self._made_one_shot(view)
        return known[1]

    def _made_one_shot(self, view: ViewDef) -> OneShotNodes:
        view = error_reporting_view(view)
        if self._sharing is not None:
            view = replace(view, plan=self._sharing.over_standing(view.plan))
        mine: dict[mir.Mir, Node] = {}

        def node(m: mir.Mir) -> Node:
            if m not in mine:
                parents = tuple(node(i) for i in m.inputs)
                known = self.made.get(m)
                op = OPERATORS[type(m)](m) if known is None or m in self._parts else known.op
                mine[m] = Node(-1, op, parents, fields=op.fields())
            return mine[m]

        top = node(view.plan)
        twins = {n: self.made[m] for m, n in mine.items() if m in self.made}
        return view, top, twins, {mine[base]: columns for base, columns in columns_used(view.plan).items()}

    def top(self, view: str) -> Node | None:
        """The node of a view's rows, or None."""
        known = self._plans.get(view)
        return None if known is None else self.made.get(known)

    def names(self) -> list[str]:
        """The views in the graph."""
        return list(self.views)

    def parts(self) -> list[Node]:
        """The nodes before exchanges that compute a part on each worker: each has only its own worker's rows."""
        return list(self._parts.values())

    def rename_view(self, view: str, name: str) -> None:
        """Rename a view.  A view that has the new name must be dropped first."""
        reader = self.engine.readers.get(view)
        if reader is not None:
            assert isinstance(reader.op, Reader)
            view_of(reader).rename(name)
            reader.op.name, reader.op.adhoc = name, False
            self.engine.readers[name] = self.engine.readers.pop(view)
        self.views[name] = replace(self.views.pop(view), name=name)
        if view in self._plans:
            self._plans[name] = self._plans.pop(view)

    def drop_view(self, name: str) -> None:
        """Remove the view, its reader, and every node that no other view needs."""
        self._note_change(name)
        self.remove_trial_view(name)

    def _drop_reader(self, name: str) -> None:
        reader = self.engine.readers.pop(name)
        del self.engine.reads[reader]
        self.engine.ranged.discard(reader)
        if reader.state is not None:
            view_of(reader).drop()
        self.engine.graph.remove(reader)

    def _sweep(self) -> None:
        """Remove every node that no view needs."""
        needed = {self.made[p] for p in self._plans.values()}
        for node in reversed(list(self.engine.graph.nodes)):
            if not node.children and node not in self.engine.reads and node not in needed:
                self._forget(node)

    # -------------------------------------------------------------- the same graph on another worker
    def graph_plan(self) -> GraphPlan:
        """The current graph as data."""
        plans: dict[Node, SingleNode | PartialNode | FinalNode] = {n: PartialNode(m) for m, n in self._parts.items()}
        plans |= {n: FinalNode(m) if m in self._parts else SingleNode(m) for m, n in self.made.items()}
        by = {x: cols for (_, cols), x in self._exchanged.items()}
        names = {n: name for name, n in self.engine.readers.items()}

        def what(n: Node) -> SingleNode | PartialNode | FinalNode | KeepNode | ExchangeNode | ReaderNode:
            if n in plans:
                return plans[n]
            return ExchangeNode(by[n]) if n in by else ReaderNode(names[n]) if n in names else KeepNode()

        nodes = tuple(PlannedNode(n.id, what(n), tuple(p.id for p in n.parents), n in self._full)
                      for n in self.engine.graph.nodes)
        instead, members = ({}, {}) if self._sharing is None else self._sharing.known()
        return GraphPlan(nodes, self.engine.graph.next_id, tuple(self.views.values()), dict(self._plans), instead,
                         members)

    def adopt(self, plan: GraphPlan) -> None:
        """Make the graph of another worker.  Raises SqlError 1235 if this engine has a graph already."""
        graph = self.engine.graph
        if not isinstance(plan, GraphPlan) or graph.nodes:
            raise SqlError(*NOT_SUPPORTED_YET, "Only a worker without views takes another one's graph over")
        self.views, self._plans = {v.name: v for v in plan.views}, dict(plan.plans)
        if self._sharing is not None:
            self._sharing.take(plan.instead, plan.members)
        nodes: dict[int, Node] = {}
        for p in plan.nodes:
            graph.next_id = p.id
            parents = [nodes[i] for i in p.parents]
            match p.what:
                case SingleNode(m):
                    node = self.made[m] = self._joined(OPERATORS[type(m)](m), parents)
                    if isinstance(m, mir.Base):
                        self.engine.bases.setdefault(m.table.name, []).append(node)
                case PartialNode(m):
                    node = self._parts[m] = self._joined(parts_of(m)[0], parents)
                case FinalNode(m):
                    node = self.made[m] = self._joined(parts_of(m)[1], parents)
                case ExchangeNode(by):
                    node = self._exchanged[parents[0], by] = self._joined(Exchange(parents[0].fields, by), parents)
                case KeepNode():
                    node = self._kept[parents[0]] = self._joined(Keep(parents[0].fields), parents)
                case ReaderNode(name):
                    node = self._reader(self.views[name], parents)
            node.full = p.full
            if p.full:
                self._full.add(node)
            nodes[p.id] = node
        graph.next_id = plan.next_id

    def back_to(self, plan: GraphPlan) -> set[Node]:
        """Restore the graph of an earlier plan, with its node numbers, after its views were restored.

        Returns the nodes that were made again and so have no state.  Raises InvariantViolation if the graph differs.
        """
        graph = self.engine.graph
        if self._sharing is not None:
            self._sharing.take(plan.instead, plan.members)
        for name, view in self.views.items():
            if name in plan.plans and self._plans.get(name) != plan.plans[name]:
                self._lower(view, plan.plans[name])
        self._changed = None
        self._sweep()
        planned = same_nodes(self.graph_plan(), plan)
        if planned is None:
            raise InvariantViolation("SAME-GRAPH", "a change was undone, and the graph differs from the one before it")
        again = {n for n in graph.nodes if n.id != planned[n.id].id}
        for n in again:
            n.full = planned[n.id].full
        self._full = {n for n in graph.nodes if planned[n.id].full}
        place = {p.id: i for i, p in enumerate(plan.nodes)}
        for n in graph.nodes:
            n.id = planned[n.id].id
        graph.nodes.sort(key=lambda n: place[n.id])
        return again

    def input_plan(self, node: Node) -> mir.Mir:
        """The plan whose rows are the node's only input."""
        (parent,) = node.parents
        while parent in self._kept.values() or parent.op.remote:
            (parent,) = parent.parents
        return next(m for m, n in self.made.items() if n is parent)

    def tables(self, view: ViewDef) -> list[str]:
        return list(mir.tables_of(view.plan))

    def rename_table(self, table: str, name: str) -> None:
        """Rename a table in all nodes and plans."""
        self._one_shots = {}
        for node in self.engine.bases.get(table, ()):
            assert isinstance(node.op, Base)
            node.op.table = replace(node.op.table, name=name)
        if table in self.engine.bases:
            self.engine.bases[name] = self.engine.bases.pop(table)
        self.engine.builds.renamed(table, name)
        self.made = {mir.renamed(m, table, name): n for m, n in self.made.items()}
        self._parts = {mir.renamed(m, table, name): n for m, n in self._parts.items()}
        self.views = {v: self.renamed(view, table, name) for v, view in self.views.items()}
        self._plans = {v: mir.renamed(m, table, name) for v, m in self._plans.items()}
        if self._changed is not None:
            self._changed = {mir.renamed(m, table, name) for m in self._changed}
        if self._sharing is not None:
            self._sharing.rename_table(table, name)

    def rekey_table(self, table: TableDef) -> None:
        self._one_shots = {}
        for node in self.engine.bases.get(table.name, ()):
            assert isinstance(node.op, Base)
            node.op.rekey(table, node.width)

    def renamed(self, view: ViewDef, table: str, name: str) -> ViewDef:
        return view.with_table(table, name)

    def outdated(self, view: ViewDef, tables: Mapping[str, TableDef]) -> SqlError | None:
        return outdated(view.plan, tables)

    def drop_table(self, name: str) -> None:
        for node in list(self.engine.bases.get(name, ())):
            assert not node.children, f"views still read {name}"
            self._forget(node)

    def _forget(self, node: Node) -> None:
        self.engine.graph.remove(node)
        self.made = {m: n for m, n in self.made.items() if n is not node}
        self._parts = {m: n for m, n in self._parts.items() if n is not node}
        self._kept = {n: k for n, k in self._kept.items() if k is not node}
        self._exchanged = {at: x for at, x in self._exchanged.items() if x is not node}
        left = {t: [n for n in nodes if n is not node] for t, nodes in self.engine.bases.items()}
        self.engine.bases = {t: nodes for t, nodes in left.items() if nodes}


def traceable(node: Node, cols: Columns) -> bool:
    """Whether rows of the node can be looked up by `cols`, in states that stateless nodes lead to."""
    if node.op.stateful:
        return node.op.finds(cols)
    try:
        needs = node.op.needs(node, cols)
    except Untraceable:
        return False
    return all(traceable(node.parents[n.port], n.cols) for n in needs)
