"""The base of stateful operators: makes the state that the layout requires, and reads stored rows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noria.core.batch import Batch, Codes
from noria.core.types import Field
from noria.dataflow.graph.keys import repeated_per_key
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    Operator,
    ParentPull,
    UpstreamReader,
)
from noria.dataflow.graph.protocols import State
from noria.dataflow.ops.stateful.gate import Gate, PartScan, UnslicedScan
from noria.state.rows.table import Table


class Stateful(Operator):
    stateful = True
    saves = True
    parted = True  # `State.part` returns the node's rows

    def fresh(self, engine: GraphRuntime, node: Node) -> State:
        """An empty state, full or partial as the node is."""
        return Table(node.width, node.folds(), engine.symbols, full=node.full, name=repr(node))

    def indexes(self, node: Node) -> list[Columns]:
        """The indexes that the state needs."""
        return node.indexes

    def make_state(self, engine: GraphRuntime, node: Node) -> None:
        if node.state is None or node.state.full != node.full:
            node.state = self.fresh(engine, node)
        node.state.fit(self.indexes(node))

    def fill(self, engine: GraphRuntime, node: Node, cols: Columns, keys: Codes, rows: Batch) -> None:
        node.stored.fill(cols, keys, rows)

    def size(self, engine: GraphRuntime, node: Node) -> int:
        return len(node.stored) if node.full else 0

    def gate(self, node: Node) -> Gate:
        return Gate(node, PartScan(node) if self.parted else UnslicedScan(node))

    def all_rows(self, engine: UpstreamReader, node: Node) -> Batch:
        return node.stored.rows()

    def saved(self, node: Node) -> Batch:
        return node.stored.rows()

    def restore(self, engine: GraphRuntime, node: Node, rows: Batch) -> None:
        table_of(node).apply(rows)

    def forget(self, engine: GraphRuntime, node: Node) -> None:
        node.clear_ranges()
        if node.state is not None:
            node.state = None
            self.make_state(engine, node)

    # -------------------------------------------------------------- reading
    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        if not cols:
            return repeated_per_key(self.all_rows(engine, node), keys.shape[1], engine.limits)
        return node.stored.lookup(cols, keys, engine.tick_number)

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        yield self.all_rows(engine, node)


class StoredInput(Stateful):
    """out = input, stored."""

    def __init__(self, fields: tuple[Field, ...]):
        self._fields = fields

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        return [p]

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return inputs[0]


def table_of(node: Node) -> Table:
    """The state of a node whose operator keeps it in a table."""
    assert isinstance(node.state, Table)
    return node.state
