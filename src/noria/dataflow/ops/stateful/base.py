"""Base table: out = the rows of a table; the root of the data-flow.

If joins look rows up in it, it keeps a partial state and reads missing keys from the store. Otherwise all lookups read
the store (section 4.3: base tables answer every upquery). The store has a tick's delta before the tick.

A single worker's tick drops the rows that no present key covers, if the state is older than all states below and none
of these is full (`drops`). Every key present below was then pulled through it. Otherwise all rows pass.

When a table gains columns, readers of the new columns use another node. The older node has the first columns
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from noria.core.batch import Batch, Codes
from noria.core.types import BESIDE, Field, TableDef
from noria.dataflow.backfill.read_ahead import ReadAhead
from noria.dataflow.graph.keys import distinct, folded_keys, repeated_per_key
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    ParentPull,
    UpstreamReader,
)
from noria.dataflow.graph.partition import SPREAD, Partition, Parts
from noria.dataflow.ops.stateful.gate import Gate, KeyScan, UnslicedScan
from noria.dataflow.ops.stateful.stateful import Stateful, table_of
from noria.state.rows.table import Table

SCAN_ROWS = 65_536


class Base(Stateful):
    """The operator of one table. `drops`: whether deltas are dropped that the state does not cover."""

    saves = False

    def __init__(self, table: TableDef):
        self.table = table
        self.drops = False

    def fields(self) -> tuple[Field, ...]:
        return self.table.fields

    def lookup(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """Look rows up in the store."""
        return engine.looked_up(self.table.name, node, cols, keys)

    def describe(self) -> str:
        return f"table {self.table.name.partition(BESIDE)[0]}"

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return []

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        """Hashed by the table's sharding columns. A table without a primary key may have its rows at any worker."""
        by = self.table.sharded_by
        return Partition((), SPREAD if by is None else (by,))

    def make_state(self, engine: GraphRuntime, node: Node) -> None:
        for cols in sorted(node.pulled | {cols for base, cols in engine.builds.promised if base is node}):
            if cols:
                engine.builds.index(node, self.table.name, cols)
        if not node.kept:
            node.state, self.drops = None, False
            return
        if node.state is None:
            self.drops = engine.exchanges is None and (self.drops or not any(c.live for c, _ in node.children))
            node.state = Table(node.width, node.folds(), engine.symbols, full=False, name=self.describe())
        node.state.fit(node.indexes)

    def size(self, engine: GraphRuntime, node: Node) -> int:
        return engine.store.row_count(self.table.name)

    def gate(self, node: Node) -> Gate:
        """A scan in key order; without a primary key rows have no position, so all pass at once."""
        return Gate(node, KeyScan(node, lambda: self.table.name) if self.table.primary_key else UnslicedScan(node))

    def ahead(self, node: Node, cols: Columns) -> ReadAhead | None:
        return ReadAhead(node, cols, lambda: self.table)

    def rekey(self, table: TableDef, width: int) -> None:
        """Use the table's new primary key, by which rows are ordered from now on."""
        key = table.primary_key if all(c < width for c in table.primary_key) else ()
        self.table = replace(self.table, primary_key=key, keyed=table.keyed)

    def values_between(self, engine: GraphRuntime, cols: Columns, low: int, high: int) -> Codes:
        return engine.store.values_between(self.table.name, cols[0], low, high)

    def reach(self, engine: GraphRuntime, cols: Columns, low: int, high: int, rows: int, descending: bool) -> int:
        return engine.store.reach(self.table.name, cols[0], low, high, rows, descending)

    def presence(self, node: Node) -> list[Columns]:
        return [c for c in node.indexes if c in node.pulled]

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if node.state is None or delta is None:
            return delta
        covered = table_of(node).apply(delta)
        return covered if self.drops and not node.full_below else delta

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        if not cols:
            return repeated_per_key(engine.all_rows(node), keys.shape[1], engine.limits)
        if node.state is None:
            return self.lookup(engine, node, cols, keys)
        if mode is MissMode.FILL:
            self._fill(engine, node, cols, keys)
        return node.state.lookup(cols, keys, engine.tick_number)

    def _fill(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes) -> None:
        miss = node.missing(cols, keys)
        node.stats.requested += keys.shape[1]
        if not miss.any():
            return
        missing = distinct(folded_keys(engine.symbols, [node.fields[c].type.folds for c in cols], keys[:, miss]))
        node.stats.misses += missing.shape[1]
        rows, _ = self.lookup(engine, node, cols, missing)
        node.stored.fill(cols, missing, rows)
        engine.note("reads", node, cols, missing, lambda: " from disk")

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        after: bytes | None = None
        while True:
            if engine.limits is not None:
                engine.limits.check()
            rows, after = engine.store.scan(self.table.name, after, SCAN_ROWS, engine.texts_of(node))
            if len(rows):
                yield node.narrowed(rows)
            if after is None:
                return

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        raise AssertionError("nothing stands above a base table")
