"""Lowers MIR to the data-flow graph: one operator per plan node, shared when equal (section 5.1).

Keeps true: equal plan nodes have one graph node.  Every input in which a node looks rows up can be looked up; if its
columns do not trace to a state, a `Keep` is inserted.

Plans that are not equal are rewritten to share (`plan/reuse/`) before the graph is laid out.  All new views, and all
views in which nothing is kept yet, are rewritten together, so their order does not matter.  A view in use stays as it
is, and others build on what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from noria.core.errors import InvariantViolation, SqlError
from noria.core.types import TableDef
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph import layout
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import UNREADY, Columns, Node, Operator, Untraceable
from noria.dataflow.graph.partition import ONE
from noria.dataflow.graph.published import view_of
from noria.dataflow.ops.base import Base
from noria.dataflow.ops.exchange import Exchange
from noria.dataflow.ops.keep import Keep
from noria.dataflow.ops.reader import Reader
from noria.lowering.operators import OPERATORS, parts_of, reader_of
from noria.plan import mir
from noria.plan.graph_plan import Exchanged, GraphPlan, Kept, Made, Part, PlannedNode, Read, Whole, same_nodes
from noria.plan.optimizer import of_parts, told
from noria.plan.reuse import Alone, Sharing, related, sources
from noria.plan.uses import outdated, used
from noria.plan.view import ViewDef


class Lowering:
    """Adds plans to an engine's graph and takes them out again.  reuse: beyond equality, too."""

    def __init__(self, engine: Engine, reuse: bool = True):
        self.engine = engine
        self.made: dict[mir.Mir, Node] = {}
        self._kept: dict[Node, Node] = {}  # input -> the Keep above it
        self._exchanged: dict[tuple[Node, Columns], Node] = {}  # input, by which columns -> the exchange
        self._parts: dict[mir.Mir, Node] = {}  # what each worker does of these before an exchange
        self.views: dict[str, ViewDef] = {}
        self._sharing = Sharing(self._full_alone) if reuse else None
        self._plans: dict[str, mir.Mir] = {}  # of views, as they are in the graph
        self._full: set[Node] = set()  # of several workers: those that are to be
        self._changed: set[mir.Mir] | None = None  # what the views that came and went group, None: none did

    def node(self, m: mir.Mir) -> Node:
        """The graph node of a plan node, made when it is not there."""
        if m in self.made:
            return self.made[m]
        op, asked = OPERATORS[type(m)](m), [None] * len(m.inputs)
        inputs: Iterable[Node] = map(self.node, m.inputs)
        if self.engine.shards is not None and (parts := op.in_parts()) is not None:
            inputs = list(inputs)
            if op.partition([i.parts for i in inputs]).inputs != (None,):
                part, op = parts
                self._parts[m] = self._added(part, inputs, part.lookups() or asked)
                inputs = [self._parts[m]]
        node = self._added(op, inputs, op.lookups() or asked)
        if isinstance(m, mir.Base):
            self.engine.bases.setdefault(m.table.name, []).append(node)
        self.made[m] = node
        return node

    def _added(self, op: Operator, inputs: Iterable[Node], asked: Sequence[Columns | None]) -> Node:
        """A node over these, with what must stand between."""
        if self.engine.shards is not None:
            inputs = list(inputs)
            partition = op.partition([i.parts for i in inputs])
            inputs = [self._exchange(i, by) for i, by in zip(inputs, partition.inputs, strict=True)]
        return self._joined(op, [self._able(i, cols) for i, cols in zip(inputs, asked, strict=True)])

    def _joined(self, op: Operator, parents: Sequence[Node]) -> Node:
        """A node over these as they are."""
        node = self.engine.graph.add(op, parents)
        if self.engine.shards is not None:
            node.parts = op.partition([p.parts for p in parents]).output
            node.elsewhere = node.parts == ONE and self.engine.shards.worker != 0
        return node

    def _exchange(self, node: Node, by: Columns | None) -> Node:
        """The node's rows, hashed by these columns."""
        if by is None:
            return node
        if (node, by) not in self._exchanged:
            self._exchanged[node, by] = self._added(Exchange(node.fields, by), [node], [None])
        return self._exchanged[node, by]

    def _able(self, node: Node, cols: Columns | None) -> Node:
        """The node itself when rows can be found in it by cols, else a `Keep` of it; of no columns at all, when its
        rows are in memory."""
        if cols is None or (traceable(node, cols) if cols else node.op.stateful and bool(node.parents)):
            return node
        if node not in self._kept:
            self._kept[node] = self._added(Keep(node.fields), [node], [None])
        return self._kept[node]

    def add_view(self, view: ViewDef) -> None:
        """A view, which tells the errors of its conditions; its nodes are made as the graph is laid out anew."""
        self.views[view.name] = self._told(view)
        self._note_change(view.name)

    def _told(self, view: ViewDef) -> ViewDef:
        """As it goes into the graph."""
        return told(view if self.engine.shards is None else of_parts(view))

    def replan(self) -> None:
        """Make the nodes of the views that were added, and sweep those of dropped ones.

        The views in which nothing is kept are planned anew with them, as one set.  Call it before `Engine.relayout`.
        """
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
        if self.engine.shards is not None:
            engine = self.engine
            full = [n for n in engine.graph.nodes if n in self._full]
            self._full = set(layout.plan(engine.graph.nodes, engine.reads.items(), full, engine.ranged).full)
        for node in self.engine.graph.nodes:
            node.reuse, node.stands_for = "", ()
        for m, text, parts in () if self._sharing is None else self._sharing.told():
            if m in self.made:
                node = self.made[m]
                node = self._kept.get(node, node) if isinstance(m, mir.Project) else node
                node.reuse, node.stands_for = text, parts

    def try_view(self, view: ViewDef) -> None:
        """The nodes of a view that is taken out again, over what is there; nothing else is planned anew."""
        view = self.views[view.name] = self._told(view)
        self._lower(view, view.plan if self._sharing is None else self._sharing.over_standing(view.plan))

    def take_out(self, name: str) -> None:
        """A view that was tried."""
        del self.views[name]
        self._plans.pop(name, None)
        if name in self.engine.readers:
            self._drop_reader(name)
        self._sweep()

    def planned(self, view: str) -> mir.Mir:
        """The view's plan as it is in the graph."""
        return self._plans[view]

    def _note_change(self, view: str) -> None:
        self._changed = (self._changed or set()) | sources(self.views[view].plan)

    def _lower(self, view: ViewDef, plan: mir.Mir) -> None:
        top = self.node(plan)
        self._plans[view.name] = plan
        if view.internal and not view.feed:
            return
        node = self.engine.readers.get(view.name)
        if node is not None and not node.full and self.engine.shards is None:
            self.engine.graph.move(node, [top])
            return
        if node is not None:
            self._drop_reader(view.name)
        by = None
        if self.engine.shards is not None:
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
        """Is nothing kept of it?  Of a view that is kept whole: is nothing written?"""
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
        """Can it be planned anew?  Of several workers each would know its own part only: a plan stays."""
        return self.engine.shards is None and self._is_idle(view)

    def is_idle(self, view: str) -> bool:
        """Has nothing been read of the view yet, at this worker?"""
        return view in self.views and self._is_idle(self.views[view])

    def _is_full(self, node: Node) -> bool:
        """Of several workers: is it to be, whenever its state is whole here?  All of them must plan alike."""
        return node.full if self.engine.shards is None else node in self._full

    def _full_alone(self, view: ViewDef, plan: mir.Mir) -> Alone:
        """What is full in a program of this view alone, of this plan."""
        mine = self.engine
        alone = Lowering(Engine(mine.store, mine.symbols, mine.views), reuse=False)
        alone._lower(view, plan)
        full = layout.plan(alone.engine.graph.nodes, alone.engine.reads.items(), (), alone.engine.ranged).full
        reader = alone.engine.readers[view.name]
        return Alone(frozenset(m for m, n in alone.made.items() if n in full), reader not in full, len(alone._kept))

    def once(self, view: ViewDef) -> tuple[ViewDef, Node, dict[Node, Node], dict[Node, set[int]]]:
        """Nodes that are in no graph, for one reading of a view that is in none: the view as it tells errors, the node
        of its rows, for each node the graph's equal, where there is one, and of base tables the columns looked at."""
        view = told(view)
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
        return view, top, twins, {mine[base]: columns for base, columns in used(view.plan).items()}

    def top(self, view: str) -> Node | None:
        """The node of a view's rows, if it is there."""
        known = self._plans.get(view)
        return None if known is None else self.made.get(known)

    def names(self) -> list[str]:
        """The views in the graph."""
        return list(self.views)

    def parts(self) -> list[Node]:
        """What each worker does before an exchange: each has the rows of its own."""
        return list(self._parts.values())

    def rename_view(self, view: str, name: str) -> None:
        """The view has another name from now on; a view of that name must be dropped before."""
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
        """Remove the reader and every node that nothing needs any more."""
        self._note_change(name)
        self.take_out(name)

    def _drop_reader(self, name: str) -> None:
        reader = self.engine.readers.pop(name)
        del self.engine.reads[reader]
        self.engine.ranged.discard(reader)
        if reader.state is not None:
            view_of(reader).drop()
        self.engine.graph.remove(reader)

    def _sweep(self) -> None:
        """Take out every node that nothing needs any more."""
        wanted = {self.made[p] for p in self._plans.values()}
        for node in reversed(list(self.engine.graph.nodes)):
            if not node.children and node not in self.engine.reads and node not in wanted:
                self._forget(node)

    # -------------------------------------------------------------- the same graph at another worker
    def graph_plan(self) -> GraphPlan:
        """The graph as it is."""
        plans: dict[Node, Made | Part | Whole] = {n: Part(m) for m, n in self._parts.items()}
        plans |= {n: Whole(m) if m in self._parts else Made(m) for m, n in self.made.items()}
        by = {x: cols for (_, cols), x in self._exchanged.items()}
        names = {n: name for name, n in self.engine.readers.items()}

        def what(n: Node) -> Made | Part | Whole | Kept | Exchanged | Read:
            if n in plans:
                return plans[n]
            return Exchanged(by[n]) if n in by else Read(names[n]) if n in names else Kept()

        nodes = tuple(PlannedNode(n.id, what(n), tuple(p.id for p in n.parents), n in self._full)
                      for n in self.engine.graph.nodes)
        instead, members = ({}, {}) if self._sharing is None else self._sharing.known()
        return GraphPlan(nodes, self.engine.graph.next_id, tuple(self.views.values()), dict(self._plans), instead,
                         members)

    def adopt(self, plan: GraphPlan) -> None:
        """The same graph, in an engine that has none."""
        graph = self.engine.graph
        if not isinstance(plan, GraphPlan) or graph.nodes:
            raise SqlError(1235, "42000", "Only a worker without views takes another one's graph over")
        self.views, self._plans = {v.name: v for v in plan.views}, dict(plan.plans)
        if self._sharing is not None:
            self._sharing.take(plan.instead, plan.members)
        nodes: dict[int, Node] = {}
        for p in plan.nodes:
            graph.next_id = p.id
            parents = [nodes[i] for i in p.parents]
            match p.what:
                case Made(m):
                    node = self.made[m] = self._joined(OPERATORS[type(m)](m), parents)
                    if isinstance(m, mir.Base):
                        self.engine.bases.setdefault(m.table.name, []).append(node)
                case Part(m):
                    node = self._parts[m] = self._joined(parts_of(m)[0], parents)
                case Whole(m):
                    node = self.made[m] = self._joined(parts_of(m)[1], parents)
                case Exchanged(by):
                    node = self._exchanged[parents[0], by] = self._joined(Exchange(parents[0].fields, by), parents)
                case Kept():
                    node = self._kept[parents[0]] = self._joined(Keep(parents[0].fields), parents)
                case Read(name):
                    node = self._reader(self.views[name], parents)
            node.full = p.full
            if p.full:
                self._full.add(node)
            nodes[p.id] = node
        graph.next_id = plan.next_id

    def back_to(self, plan: GraphPlan) -> set[Node]:
        """The graph is what it was of this plan, after the views are those of then again: every node by its number of
        then.  The nodes that had to be made again, which have no state.  InvariantViolation: it is another graph."""
        graph = self.engine.graph
        if self._sharing is not None:
            self._sharing.take(plan.instead, plan.members)
        for name, view in self.views.items():
            if name in plan.plans and self._plans.get(name) != plan.plans[name]:
                self._lower(view, plan.plans[name])
        self._changed = None
        self._sweep()
        found = same_nodes(self.graph_plan(), plan)
        if found is None:
            raise InvariantViolation("SAME-GRAPH", "a change was taken back, and the graph is another one than before")
        again = {n for n in graph.nodes if n.id != found[n.id].id}
        for n in again:
            n.full = found[n.id].full
        self._full = {n for n in graph.nodes if found[n.id].full}
        place = {p.id: i for i, p in enumerate(plan.nodes)}
        for n in graph.nodes:
            n.id = found[n.id].id
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
        """The table has another name from now on."""
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
    """Can rows of node be found by cols, through stateless nodes down to states?"""
    if node.op.stateful:
        return node.op.finds(cols)
    try:
        needs = node.op.needs(node, cols)
    except Untraceable:
        return False
    return all(traceable(node.parents[n.port], n.cols) for n in needs)
