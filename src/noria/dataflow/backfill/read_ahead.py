"""Reads a base table sequentially when a first state will look up most of its rows (section 4.5's bulk fill).

Reading in primary-key order replaces many single lookups. `ReadAhead.is_cheaper` decides when some rows have passed:
the others may look up few keys, or a filter may drop them.

Keeps true: it fills the same keys as lookups would, each of them completely. Between two slices, deltas of the table
update present keys as in any partial state. Only a prefix of the primary key is read ahead, since rows with equal
values for it are adjacent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.types import TableDef
from noria.dataflow.graph.keys import distinct, folded_keys
from noria.dataflow.graph.nodes import Columns, GraphRuntime, Node
from noria.state.rows import probe

ROW_BYTES = 16  # estimate, for each row, of a column or an index
PROBED_ROWS = 8_192  # the decision is made after this many
WORTH = 2  # read ahead if lookups are expected of at least one row in this many
MOST_ROWS = 65_536  # of one key: a key with more rows is left to lookups


class ReadAhead:
    """A sequential read of one table, by one key, for a node that looks rows up by this key."""

    def __init__(self, base: Node, columns: Columns, table: Callable[[], TableDef]):
        self.base, self.columns, self._table = base, columns, table
        self.over = False
        self.done = 0
        self._misses = base.stats.misses  # before the first lookup for it
        self._after: bytes | None = None
        self._least = 1  # rows of a slice: more than one key has

    def possible(self) -> bool:
        """Whether the table has a partial state with this index, and rows of one key are adjacent on disk."""
        base = self.base
        begins = self._table().primary_key[: len(self.columns)] == self.columns
        return begins and base.state is not None and not base.full and self.columns in base.indexes

    def is_cheaper(self, engine: GraphRuntime, passed: int, total: int) -> bool:
        """Whether to read ahead, after `passed` of `total` rows with the lookups they needed. Not if few lookups
        are expected or the rows would use too much memory."""
        base, rows, most = self.base, self.total(engine), engine.builds.adhoc_bytes
        expected = (base.stats.misses - self._misses) * (total - passed) // max(passed, 1)
        if not self.possible() or expected * WORTH < rows:
            return False
        return not 0 < most < rows * (base.width + len(base.indexes) + 2) * ROW_BYTES

    def total(self, engine: GraphRuntime) -> int:
        return engine.store.row_count(self._table().name)

    def step(self, engine: GraphRuntime, rows: int) -> None:
        """Read about `rows` more rows."""
        table, rows = self._table(), max(rows, self._least)
        scanned, after = engine.store.scan(table.name, self._after, rows)
        batch = self.base.narrowed(scanned)
        self.over = after is None
        keys = self._keys(engine, batch.columns[list(self.columns)])
        complete = len(batch)
        if not self.over and len(self.columns) < len(table.primary_key):  # the last key may have more rows
            complete = int(np.flatnonzero((keys != keys[:, -1:]).any(axis=0)).max(initial=-1)) + 1
            if not complete:
                self.over, self._least = rows >= MOST_ROWS, 2 * rows
                return
            positions = engine.store.positions(table.name, scanned.take(np.array([complete - 1])))
            assert positions is not None
            after = positions[0]
        self._after = after
        self.done += complete
        self._fill(engine, batch.columns[:, :complete], np.ascontiguousarray(keys[:, :complete]))

    def _keys(self, engine: GraphRuntime, keys: Codes) -> Codes:
        folds = [self.base.fields[c].type.folds for c in self.columns]
        return np.ascontiguousarray(folded_keys(engine.symbols, folds, keys))

    def _fill(self, engine: GraphRuntime, rows: Codes, keys: Codes) -> None:
        """Fill the missing ones of these keys; `rows` has all their rows."""
        missing_keys = distinct(keys)
        missing_keys = np.ascontiguousarray(missing_keys[:, self.base.stored.missing(self.columns, missing_keys)])
        if not missing_keys.shape[1]:
            return
        _, at = probe.pairs(missing_keys, keys)
        self.base.stored.fill(self.columns, missing_keys, Batch.of(np.ascontiguousarray(rows[:, np.sort(at)])))
        engine.note("reads", self.base, self.columns, missing_keys, lambda: " from disk, ahead")
