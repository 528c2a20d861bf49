"""Builds of this worker's own states, in slices: first states, indexes of tables, and checks of new table definitions.

Keeps true: at the end of a build, its state equals the operator applied to all input rows and deltas. The graph
computes a first state (`scan.py`), or Spark's files have the input rows. `Backfills` makes and runs the builds.
"""

from __future__ import annotations

from collections.abc import Iterator

from noria.core.batch import Batch, concat
from noria.dataflow.backfill.build import Backfill, BackfillRuntime
from noria.dataflow.backfill.scan import ScanBackfill
from noria.dataflow.graph import ranges
from noria.dataflow.graph.nodes import Columns, Node
from noria.dataflow.graph.protocols import DefinitionCheck, IndexBuild, State


class StateBackfill(ScanBackfill):
    """The first state of one full node, computed from the nodes above it."""

    def __init__(self, node: Node):
        super().__init__(node)
        self._shadow: Node | None = None  # applies the node's operator at the end of the path

    def _begin(self, engine: BackfillRuntime) -> None:
        super()._begin(engine)
        n, top = self.node, self._top
        assert top is not None
        shadow = Node(n.id, n.op, (top,), fields=n.fields, full=True, full_below=n.full_below, all_remote=n.all_remote)
        self._shadow = shadow
        self._state(engine, shadow)
        gates = [gate for _, gate in self._gates]
        expected = sum(g.total(engine) for g in gates)
        n.op.begin(engine, shadow, expected, expected if all(g.source.parents for g in gates) else 0)
        for rows in engine.stream(top):  # output that exists without input rows, as of GROUP_CONCAT without groups
            n.op.tick(engine, shadow, [rows])

    def step(self, engine: BackfillRuntime) -> bool:
        if not self.begun:
            self._begin(engine)
            assert self._shadow is not None
            if self._shadow.op.from_end(engine, self._shadow, self.node.parents[0]):
                self._finish(engine)
                return True
        return super().step(engine)

    @property
    def state(self) -> State | None:
        """The state being filled."""
        return None if self._shadow is None else self._shadow.state

    def refit(self) -> None:
        """After a layout, use the node's present state and indexes."""
        if self._shadow is not None:
            n, shadow = self.node, self._shadow
            shadow.state, shadow.indexes, shadow.ranges = n.state, n.indexes, n.ranges

    def _state(self, engine: BackfillRuntime, shadow: Node) -> None:
        self.refit()

    def _receive(self, engine: BackfillRuntime, rows: Batch) -> None:
        shadow = self._shadow
        assert shadow is not None
        if shadow.ranges:
            ranges.admit(engine, shadow, [rows])
        shadow.op.tick(engine, shadow, [rows])

    def _finish(self, engine: BackfillRuntime) -> None:
        assert self._shadow is not None
        self._shadow.op.finish(engine, self._shadow)

    def describe(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}"


class Promotion(StateBackfill):
    """A full state that replaces a state in use: a partial one that must become full, or a full one that lacks an
    index.

    It is built beside the state in use; `install` replaces that.
    """

    def __init__(self, node: Node, indexes: list[Columns]):
        super().__init__(node)
        self.indexes = indexes

    def refit(self) -> None:
        """Nothing to do: the indexes are those of the layout in which the node is full."""

    def _state(self, engine: BackfillRuntime, shadow: Node) -> None:
        shadow.indexes = self.indexes
        shadow.op.make_state(engine, shadow)

    def restarted(self) -> Promotion:
        return Promotion(self.node, self.indexes)

    def install(self) -> None:
        """Make the built state the node's state; the node is full from now on."""
        assert self._shadow is not None
        n = self.node
        if not n.full:
            n.ranges = {}
        n.full, n.state, n.indexes = True, self._shadow.state, self.indexes


class SparkBackfill(Backfill):
    """The first state of one full node from the input rows of a snapshot, then from the deltas kept back since."""

    def __init__(self, node: Node, rows: Iterator[Batch]):
        super().__init__()
        self.node = node
        self.state = node.state
        self._batches, self.rest = rows, Batch.empty(0)
        self._done = self._begun = 0

    def step(self, engine: BackfillRuntime) -> bool:
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

    def _finish(self, engine: BackfillRuntime) -> bool:
        """Apply all deltas kept back in one tick: a group that is pulled again contains all of them."""
        n = self.node
        stash, n.stash = concat(n.stash or [], n.parents[0].width), None
        if len(stash):
            n.op.tick(engine, n, [stash])
        n.op.finish(engine, n)
        return True

    def counts(self, engine: BackfillRuntime) -> tuple[int, int]:
        return self._done, self._done

    def describe(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}, computed by Spark"


class IndexBackfill(Backfill):
    """An index of a base table under construction. `base`: the node that looks up by it; None if only the table
    declares it."""

    def __init__(self, base: Node | None, columns: Columns, build: IndexBuild, table: str, names: list[str]):
        super().__init__()
        self.base, self.columns, self.build, self.table, self.names = base, columns, build, table, names
        self.ticket = ""  # names it for Spark, which makes its files

    def step(self, engine: BackfillRuntime) -> bool:
        return self.build.over or self.build.step(self.rows)

    def counts(self, engine: BackfillRuntime) -> tuple[int, int]:
        return self.build.done, self.build.total

    def describe(self) -> str:
        return f"index of table {self.table} by {', '.join(self.names)}"


class FitCheck(Backfill):
    """A check whether a table's rows fit another definition."""

    def __init__(self, fitting: DefinitionCheck, table: str):
        super().__init__()
        self.fitting, self.table = fitting, table

    def step(self, engine: BackfillRuntime) -> bool:
        return self.fitting.step(self.rows)

    def counts(self, engine: BackfillRuntime) -> tuple[int, int]:
        return self.fitting.done, self.fitting.total

    def describe(self) -> str:
        return f"do the rows of table {self.table} fit its new definition"


def _split(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    first, rest = (Batch(batch.columns[:, s].copy(), batch.weights[s].copy()) for s in (slice(rows), slice(rows, None)))
    return first, rest
