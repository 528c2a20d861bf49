"""Gate: out = the part of the input that a scan has passed. It separates existing rows from a full state that is
built in slices; each slice moves the gate.

Linear: a delta's rows pass where the scan has been; the scan reads the others later. Whether a row has passed
depends on the row alone: for a base table on its primary key, for a state on the hash of the row's identity.

Keeps true: after every tick and every slice, the rows below equal the operators applied to the rows that have
passed. Once all rows have passed, the gate is removed. No gate is in the graph; gates exist only on the path to a
state being built (`backfill/scan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes, concat
from noria.core.types import Field
from noria.dataflow.graph.nodes import (
    Columns,
    GateOperator,
    GraphRuntime,
    MissMode,
    Node,
    ParentPull,
    UpstreamReader,
)

PART_ROWS = 16  # about this many rows of a state are in a part
MOST_PARTS = 2**20


class Gate(GateOperator):
    """`closed`: no row has passed. `open`: every row has. `done`: the number of rows that have passed."""

    def __init__(self, source: Node):
        self.source = source
        self.closed, self.open = True, False
        self.done = 0

    def fields(self) -> tuple[Field, ...]:
        return self.source.fields

    def describe(self) -> str:
        return f"gate after n{self.source.id}"

    def total(self, engine: GraphRuntime) -> int:
        return len(self.source.stored)

    def advance(self, engine: GraphRuntime, rows: int) -> Batch:
        """Let about `rows` more rows pass and return them."""
        self.closed = False
        passed = self._advance(engine, rows)
        self.done += len(passed)
        return passed

    def _advance(self, engine: GraphRuntime, rows: int) -> Batch:
        raise NotImplementedError

    def _passed(self, engine: UpstreamReader, rows: Batch) -> npt.NDArray[np.bool_] | None:
        """Which rows the scan has passed; None if it has passed none of them."""
        raise NotImplementedError

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def _through(self, engine: UpstreamReader, rows: Batch) -> tuple[Batch, Codes | None]:
        """The rows that have passed, with their positions if some have not."""
        if self.open or not len(rows):
            return rows, None
        passed = self._passed(engine, rows)
        if passed is None:
            return Batch.empty(rows.width), np.empty(0, np.int64)
        return rows.where(passed), np.flatnonzero(passed)

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        return None if delta is None else self._through(engine, delta)[0]

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        if self.closed:
            return Batch.empty(node.width), np.empty(0, np.int64)
        rows, ordinal = engine.fetch(self.source, cols, keys, mode)
        passed, kept = self._through(engine, rows)
        return passed, ordinal if kept is None else ordinal[kept]

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        if self.closed:
            return
        for rows in self.source.op.stream(engine, self.source):
            yield self._through(engine, rows)[0]


class KeyGate(Gate):
    """The gate of a base table with a primary key: rows up to a key have passed."""

    def __init__(self, source: Node, table: Callable[[], str]):
        super().__init__(source)
        self._table = table
        self._up_to: bytes | None = None

    def total(self, engine: GraphRuntime) -> int:
        return engine.store.row_count(self._table())

    def _advance(self, engine: GraphRuntime, rows: int) -> Batch:
        passed, self._up_to = engine.store.scan(self._table(), self._up_to, rows)
        self.open = self._up_to is None
        return self.source.narrowed(passed)

    def _passed(self, engine: UpstreamReader, rows: Batch) -> npt.NDArray[np.bool_] | None:
        up_to = self._up_to
        keys = None if up_to is None else engine.store.positions(self._table(), rows)
        return None if up_to is None or keys is None else np.array([k <= up_to for k in keys], np.bool_)


class PartGate(Gate):
    """The gate of a state: its parts up to a number have passed."""

    def __init__(self, source: Node):
        super().__init__(source)
        self._parts = 1 << min(len(source.stored) // PART_ROWS, MOST_PARTS).bit_length()
        self._next = 0

    def _advance(self, engine: GraphRuntime, rows: int) -> Batch:
        state = self.source.stored
        each = max(len(state) // self._parts, 1)
        first, self._next = self._next, min(self._next + max(rows // each, 1), self._parts)
        self.open = self._next == self._parts
        return state.part(self._parts, first, self._next)

    def _passed(self, engine: UpstreamReader, rows: Batch) -> npt.NDArray[np.bool_] | None:
        if not self._next:
            return None
        passed: npt.NDArray[np.bool_] = self.source.stored.part_of(rows, self._parts) < self._next
        return passed


class WholeGate(Gate):
    """The gate of an input that cannot be read in parts: all rows pass at once."""

    def total(self, engine: GraphRuntime) -> int:
        return self.source.op.size(engine, self.source)

    def _advance(self, engine: GraphRuntime, rows: int) -> Batch:
        self.open = True
        return concat(list(self.source.op.stream(engine, self.source)), self.source.width)

    def _passed(self, engine: UpstreamReader, rows: Batch) -> None:
        return None
