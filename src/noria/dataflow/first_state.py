"""What is done in slices: the first state of a full node, by the graph or from files of Spark; an index of a table; a
look at whether its rows fit another definition.

A first state from the graph is a series of ticks of its own: gates (`ops.gate`) let the rows of what it derives from
pass slice by slice, through copies of the stateless operators on the way, which get all deltas besides.  So no snapshot
is kept and nothing must be caught up with: at every moment the state is its operators applied to what has passed.  Of
a join one side passes a gate, the larger one if it may; the other is there from the beginning, and meets nothing
before rows of the first have passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from noria.core.batch import Batch, concat
from noria.core.errors import SqlError
from noria.dataflow import ranged
from noria.dataflow.graph import Columns, Node, Operator, nearest
from noria.dataflow.protocols import Fitting, IndexBuild, State

if TYPE_CHECKING:
    from noria.dataflow.engine import Engine
    from noria.dataflow.ops.gate import Gate

FIRST_ROWS = 16  # of a slice: each may meet many; then as many as take BUILD_SLICE_MS


class Build:
    """rows: of the next slice; error: why it does not go on."""

    def __init__(self) -> None:
        self.rows = FIRST_ROWS
        self.error: SqlError | None = None

    def step(self, engine: Engine) -> bool:
        """One slice; True when it is whole."""
        raise NotImplementedError

    def counts(self, engine: Engine) -> tuple[int, int]:
        """Rows done, and of how many."""
        raise NotImplementedError

    def what(self) -> str:
        raise NotImplementedError


class FirstState(Build):
    """The state of one full node, from what is above it.  Begun, it is in every tick, after the graph."""

    def __init__(self, node: Node):
        super().__init__()
        self.node = node
        self._shadow: Node | None = None  # does what the node will do, below `_way`
        self._way: list[Node] = []  # copies of stateless nodes, and gates, in topological order
        self._gates: list[tuple[Node, Gate]] = []
        self.sources: set[Node] = set()

    @property
    def begun(self) -> bool:
        return self._shadow is not None

    def _begin(self, engine: Engine) -> Node:
        n = self.node
        (parent,) = n.parents
        shadow = Node(n.id, n.op, (self._driven(engine, parent),), fields=n.fields, full=True, full_below=n.full_below,
                      elsewhere=n.elsewhere)
        self._shadow = shadow
        self._state(engine, shadow)
        gates = [gate for _, gate in self._gates]
        expected = sum(g.total(engine) for g in gates)
        n.op.begin(engine, shadow, expected, expected if all(g.source.parents for g in gates) else 0)
        (top,) = shadow.parents
        for rows in engine.stream(top):  # what is there of no rows at all, as GROUP_CONCAT without groups
            n.op.tick(engine, shadow, [rows])
        return shadow

    @property
    def state(self) -> State | None:
        """What is being filled."""
        return None if self._shadow is None else self._shadow.state

    def refit(self) -> None:
        """After a new layout: the node's state may have other indexes."""
        if self._shadow is not None:
            n, shadow = self.node, self._shadow
            shadow.state, shadow.indexes, shadow.ranges = n.state, n.indexes, n.ranges

    def _state(self, engine: Engine, shadow: Node) -> None:
        self.refit()

    def _driven(self, engine: Engine, n: Node) -> Node:
        """A copy of the way to n, with gates where it begins."""
        if n.op.stateful:
            gate = n.op.gate(n)
            self.sources.add(n)
            node = self._copied(n, gate, (n,))
            self._gates.append((node, gate))
            return node
        drivers = set(n.op.drivers() or range(len(n.parents)))
        if n.op.drivers():  # the largest: what it looks up meets few rows
            drivers = {max(drivers, key=lambda port: _rows(engine, n.parents[port]))}
        copy = self._copied(n, n.op, tuple(self._driven(engine, p) if port in drivers else self._plain(p)
                                           for port, p in enumerate(n.parents)))
        copy.driver = min(drivers, default=0)
        return copy

    def _plain(self, n: Node) -> Node:
        """What the other side of a join looks up in: n as it is."""
        if n.op.stateful:
            self.sources.add(n)
            return n
        return self._copied(n, n.op, tuple(map(self._plain, n.parents)))

    def _copied(self, n: Node, op: Operator, parents: tuple[Node, ...]) -> Node:
        node = Node(n.id, op, parents, fields=n.fields, full_below=True, elsewhere=n.elsewhere)
        self._way.append(node)
        return node

    def tick(self, engine: Engine, deltas: Mapping[Node, Batch]) -> None:
        """Output deltas of sources, or what passes a gate."""
        out = dict(deltas)
        for n in self._way:
            mine = [out.get(p) for p in n.parents]
            if any(d is not None for d in mine):
                made = n.op.tick(engine, n, mine)
                if made is not None and len(made):
                    out[n] = made
        shadow = self._shadow
        assert shadow is not None
        delta = out.get(shadow.parents[0])
        if delta is not None:
            if shadow.ranges:
                ranged.admit(engine, shadow, [delta])
            shadow.op.tick(engine, shadow, [delta])

    def step(self, engine: Engine) -> bool:
        shadow = self._shadow or self._begin(engine)
        for node, gate in self._gates:
            if not gate.open:
                rows = gate.advance(engine, self.rows)
                if len(rows):
                    self.tick(engine, {node: rows})
                break
        if not all(gate.open for _, gate in self._gates):
            return False
        shadow.op.finish(engine, shadow)
        return True

    def counts(self, engine: Engine) -> tuple[int, int]:
        gates = [gate for _, gate in self._gates]
        return sum(g.done for g in gates), sum(g.total(engine) for g in gates)

    def what(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}"


class Promotion(FirstState):
    """The full state that a partial one in use is to become, or a full one that lacks an index: built beside it, then
    put in its place."""

    def __init__(self, node: Node, indexes: list[Columns]):
        super().__init__(node)
        self.indexes = indexes

    def refit(self) -> None:
        """Its indexes are those of the layout in which the node is full."""

    def _state(self, engine: Engine, shadow: Node) -> None:
        shadow.indexes = self.indexes
        shadow.op.make_state(engine, shadow)

    def anew(self) -> Promotion:
        return Promotion(self.node, self.indexes)

    def put(self) -> None:
        """The node is full from now on."""
        assert self._shadow is not None
        n = self.node
        if not n.full:
            n.ranges = {}
        n.full, n.state, n.indexes = True, self._shadow.state, self.indexes


class Delivered(Build):
    """The state of one full node from input rows as of a snapshot, then from the deltas kept back since."""

    def __init__(self, node: Node, rows: Iterator[Batch]):
        super().__init__()
        self.node = node
        self.state = node.state
        self._batches, self.rest = rows, Batch.empty(0)
        self._done = self._begun = 0

    def step(self, engine: Engine) -> bool:
        n = self.node
        if not self._begun:
            self._begun = 1
            n.op.begin(engine, n, 0, 0)
        if not len(self.rest):
            batch = next(self._batches, None)
            if batch is None:
                return self._finish(engine)
            self.rest = batch
            return False
        part, self.rest = _split(self.rest, self.rows)
        n.op.tick(engine, n, [part])
        self._done += len(part)
        return False

    def _finish(self, engine: Engine) -> bool:
        """The deltas in one: a group that is pulled again has those of the whole tick."""
        n = self.node
        stash, n.stash = concat(n.stash or [], n.parents[0].width), None
        if len(stash):
            n.op.tick(engine, n, [stash])
        n.op.finish(engine, n)
        return True

    def counts(self, engine: Engine) -> tuple[int, int]:
        return self._done, self._done

    def what(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}, computed by Spark"


class Gathered(Build):
    """The full state of an exchange: the rows of all workers that belong here, which `Shards.gather_all` asks for.
    indexes: of the state that is to take the place of a partial one in use."""

    def __init__(self, node: Node, indexes: list[Columns] | None = None):
        super().__init__()
        self.node, self._indexes = node, indexes
        self._rows: Batch | None = None
        self.state: State | None = None

    @property
    def beside(self) -> bool:
        """Is there a partial state in use?"""
        return self._indexes is not None

    def arrived(self, rows: Batch) -> None:
        self._rows = rows

    @property
    def here(self) -> bool:
        return self._rows is not None

    def step(self, engine: Engine) -> bool:
        n = self.node
        assert self._rows is not None
        if self._indexes is not None:
            n.full, n.state, n.ranges, n.indexes = True, None, {}, self._indexes
            n.op.make_state(engine, n)
        n.op.begin(engine, n, len(self._rows), 0)
        n.op.tick(engine, n, [self._rows])
        n.op.finish(engine, n)
        return True

    def counts(self, engine: Engine) -> tuple[int, int]:
        return 0, 0

    def what(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}, from all workers"


class NewIndex(Build):
    """An index of a base table.  base: the node that looks up by it; None where it is declared, and no node does."""

    def __init__(self, base: Node | None, columns: Columns, build: IndexBuild, table: str, names: list[str]):
        super().__init__()
        self.base, self.columns, self.build, self.table, self.names = base, columns, build, table, names
        self.ticket = ""  # names it to whoever makes its files

    def step(self, engine: Engine) -> bool:
        return self.build.over or self.build.step(self.rows)

    def counts(self, engine: Engine) -> tuple[int, int]:
        return self.build.done, self.build.total

    def what(self) -> str:
        return f"index of table {self.table} by {', '.join(self.names)}"


class Fit(Build):
    """Do a table's rows fit another definition?"""

    def __init__(self, fitting: Fitting, table: str):
        super().__init__()
        self.fitting, self.table = fitting, table

    def step(self, engine: Engine) -> bool:
        return self.fitting.step(self.rows)

    def counts(self, engine: Engine) -> tuple[int, int]:
        return self.fitting.done, self.fitting.total

    def what(self) -> str:
        return f"do the rows of table {self.table} fit its new definition"


def _rows(engine: Engine, n: Node) -> int:
    """Of all that a node derives from."""
    return sum(m.op.size(engine, m) for m in ({n} if n.op.stateful else nearest(n)))


def _split(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    first, rest = (Batch(batch.columns[:, s].copy(), batch.weights[s].copy()) for s in (slice(rows), slice(rows, None)))
    return first, rest
