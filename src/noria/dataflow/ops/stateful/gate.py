"""Gate: out = the input rows that a scan has read. A full state that is built in slices is below a gate; each slice
lets more rows pass.

Linear: a delta's rows pass if the scan has reached their place; otherwise the scan reads them later. Whether a row has
passed depends on the row alone: for a base table on its primary key, for a state on the hash of the row's identity.

Keeps true: after every tick and every slice, the rows below equal the operators applied to the rows that have
passed. Once all rows have passed, the gate is removed. No gate is in the graph; gates exist only on the path to a
state being built (`backfill/scan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes, concat
from noria.core.types import Field
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    MissMode,
    Node,
    Operator,
    ParentPull,
    UpstreamReader,
)

PART_ROWS = 16  # about this many rows of a state are in a part
MOST_PARTS = 2**20


class SlicedScan(Protocol):
    """Reads the rows of a node in slices, and knows which rows it has read. `open`: it has read every row."""

    open: bool

    def total(self, engine: GraphRuntime) -> int: ...

    def advance(self, engine: GraphRuntime, rows: int) -> Batch:
        """Return about `rows` more rows."""

    def passed(self, engine: UpstreamReader, rows: Batch) -> npt.NDArray[np.bool_] | None:
        """Which of these rows the scan has read; None if it has read none of them."""


class Gate(Operator):
    """`closed`: no row has passed. `done`: the number of rows that have passed."""

    def __init__(self, source: Node, scan: SlicedScan):
        self.source, self._scan = source, scan
        self.closed, self.done = True, 0

    @property
    def operator(self) -> Operator:
        return self

    @property
    def open(self) -> bool:
        return self._scan.open

    def fields(self) -> tuple[Field, ...]:
        return self.source.fields

    def describe(self) -> str:
        return f"gate after n{self.source.id}"

    def total(self, engine: GraphRuntime) -> int:
        return self._scan.total(engine)

    def advance(self, engine: GraphRuntime, rows: int) -> Batch:
        """Let about `rows` more rows pass and return them."""
        self.closed = False
        passed = self._scan.advance(engine, rows)
        self.done += len(passed)
        return passed

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def _through(self, engine: UpstreamReader, rows: Batch) -> tuple[Batch, Codes | None]:
        """The rows that have passed, with their positions if some have not."""
        if self.open or not len(rows):
            return rows, None
        passed = self._scan.passed(engine, rows)
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


class KeyScan:
    """The scan of a base table with a primary key: it has read the rows up to a key."""

    def __init__(self, source: Node, table: Callable[[], str]):
        self._source, self._table, self.open = source, table, False
        self._up_to: bytes | None = None

    def total(self, engine: GraphRuntime) -> int:
        return engine.store.row_count(self._table())

    def advance(self, engine: GraphRuntime, rows: int) -> Batch:
        passed, self._up_to = engine.store.scan(self._table(), self._up_to, rows)
        self.open = self._up_to is None
        return self._source.narrowed(passed)

    def passed(self, engine: UpstreamReader, rows: Batch) -> npt.NDArray[np.bool_] | None:
        up_to = self._up_to
        keys = None if up_to is None else engine.store.positions(self._table(), rows)
        return None if up_to is None or keys is None else np.array([k <= up_to for k in keys], np.bool_)


class PartScan:
    """The scan of a state: it has read the parts up to a number."""

    def __init__(self, source: Node):
        self._source, self.open = source, False
        self._parts = 1 << min(len(source.stored) // PART_ROWS, MOST_PARTS).bit_length()
        self._next = 0

    def total(self, engine: GraphRuntime) -> int:
        return len(self._source.stored)

    def advance(self, engine: GraphRuntime, rows: int) -> Batch:
        state = self._source.stored
        each = max(len(state) // self._parts, 1)
        first, self._next = self._next, min(self._next + max(rows // each, 1), self._parts)
        self.open = self._next == self._parts
        return state.part(self._parts, first, self._next)

    def passed(self, engine: UpstreamReader, rows: Batch) -> npt.NDArray[np.bool_] | None:
        if not self._next:
            return None
        passed: npt.NDArray[np.bool_] = self._source.stored.part_of(rows, self._parts) < self._next
        return passed


class UnslicedScan:
    """The scan of an input that cannot be read in parts: it reads all rows at once."""

    def __init__(self, source: Node):
        self._source, self.open = source, False

    def total(self, engine: GraphRuntime) -> int:
        return self._source.op.size(engine, self._source)

    def advance(self, engine: GraphRuntime, rows: int) -> Batch:
        self.open = True
        return concat(list(self._source.op.stream(engine, self._source)), self._source.width)

    def passed(self, engine: UpstreamReader, rows: Batch) -> None:
        return None
