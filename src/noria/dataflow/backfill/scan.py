"""A scan of all input rows of a node, in slices: the base class of builds that the graph computes.

Gates (`ops/stateful/gate.py`) let the rows of the states above a node pass in slices. Each slice is a tick through
copies of the stateless operators between, which also receive all deltas.

Keeps true: at every moment the output equals the operators applied to the rows that have passed. So no snapshot is
needed, and no backlog arises.

Of a join, one side passes a gate: the larger one if the operator allows it. The other side is complete from the
beginning, and no row is joined with it before rows of the first side pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from noria.core.batch import Batch
from noria.dataflow.backfill.build import Backfill, BackfillRuntime
from noria.dataflow.backfill.read_ahead import PROBED_ROWS
from noria.dataflow.graph.graph import nearest
from noria.dataflow.graph.nodes import Node, Operator, RowGate, SequentialRead


class ScanBackfill(Backfill):
    """A build through which all input rows of a node pass. Once begun, every tick updates it after the graph."""

    def __init__(self, node: Node):
        super().__init__()
        self.node = node
        self._top: Node | None = None  # the last node of the path
        self._way: list[Node] = []  # copies of stateless nodes, and gates, in topological order
        self._gates: list[tuple[Node, RowGate]] = []
        self._ahead: list[SequentialRead] = []  # tables that may be read ahead
        self._probed = False  # whether `_ahead` has only tables that are read ahead
        self.sources: set[Node] = set()

    @property
    def begun(self) -> bool:
        return self._top is not None

    def _begin(self, engine: BackfillRuntime) -> None:
        self._top = self._driven(engine, self.node.parents[0])

    def _receive(self, engine: BackfillRuntime, rows: Batch) -> None:
        """Receive the output of a slice or a tick."""
        raise NotImplementedError

    def _finish(self, engine: BackfillRuntime) -> None:
        """Complete the build: all rows have passed."""
        raise NotImplementedError

    def _driven(self, engine: BackfillRuntime, n: Node) -> Node:
        """Copy the path to n, with gates at its beginning."""
        if n.op.stateful:
            gate = n.op.gate(n)
            self.sources.add(n)
            node = self._copied(n, gate.operator, (n,))
            self._gates.append((node, gate))
            return node
        drivers = set(n.op.drivers() or range(len(n.parents)))
        if n.op.drivers():  # the largest side: its rows look up few rows each
            drivers = {max(drivers, key=lambda port: _rows(engine, n.parents[port]))}
            self._may_read_ahead(n, min(drivers))
        copy = self._copied(n, n.op, tuple(self._driven(engine, p) if port in drivers else self._plain(p)
                                           for port, p in enumerate(n.parents)))
        copy.driver = min(drivers, default=0)
        return copy

    def _may_read_ahead(self, n: Node, driver: int) -> None:
        """Collect the tables that rows of the driver will look up."""
        for port, columns in enumerate(n.op.lookups()):
            ahead = n.parents[port].op.ahead(n.parents[port], columns) if port != driver and columns else None
            if ahead is not None and ahead.possible():
                self._ahead.append(ahead)

    def _reading_ahead(self, engine: BackfillRuntime) -> SequentialRead | None:
        """The table to read ahead before more rows pass; None if there is none."""
        if not self._probed:
            gates = [gate for _, gate in self._gates]
            passed = sum(g.done for g in gates)
            if passed < PROBED_ROWS:
                return None
            total = sum(g.total(engine) for g in gates)
            self._ahead = [a for a in self._ahead if a.is_cheaper(engine, passed, total)]
            self._probed = True
        return next((a for a in self._ahead if not a.over), None)

    def _plain(self, n: Node) -> Node:
        """Copy the path to n without gates: the side of a join that is looked up."""
        if n.op.stateful:
            self.sources.add(n)
            return n
        return self._copied(n, n.op, tuple(map(self._plain, n.parents)))

    def _copied(self, n: Node, op: Operator, parents: tuple[Node, ...]) -> Node:
        node = Node(n.id, op, parents, fields=n.fields, full_below=True, all_remote=n.all_remote)
        self._way.append(node)
        return node

    def tick(self, engine: BackfillRuntime, deltas: Mapping[Node, Batch]) -> None:
        """Run the output deltas of sources, or rows that pass a gate, through the copied path."""
        out = dict(deltas)
        for n in self._way:
            mine = [out.get(p) for p in n.parents]
            if any(d is not None for d in mine):
                made = n.op.tick(engine, n, mine)
                if made is not None and len(made):
                    out[n] = made
        assert self._top is not None
        delta = out.get(self._top)
        if delta is not None:
            self._receive(engine, delta)

    def step(self, engine: BackfillRuntime) -> bool:
        if not self.begun:
            self._begin(engine)
        if (ahead := self._reading_ahead(engine)) is not None:
            ahead.step(engine, self.rows)
            return False
        for node, gate in self._gates:
            if not gate.open:
                rows = gate.advance(engine, self.rows)
                if len(rows):
                    self.tick(engine, {node: rows})
                break
        if not all(gate.open for _, gate in self._gates):
            return False
        self._finish(engine)
        return True

    def counts(self, engine: BackfillRuntime) -> tuple[int, int]:
        gates = [gate for _, gate in self._gates]
        ahead = self._ahead if self._probed else []
        total = sum(g.total(engine) for g in gates) + sum(a.total(engine) for a in ahead)
        return sum(g.done for g in gates) + sum(a.done for a in ahead), total


def _rows(engine: BackfillRuntime, n: Node) -> int:
    """The number of rows that a node derives from."""
    return sum(m.op.size(engine, m) for m in ({n} if n.op.stateful else nearest(n)))
