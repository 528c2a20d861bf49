"""Base tables that a first state looks most of their rows up in: read through once, in the order of their primary key,
rather than key by key (section 4.5's bulk fill of what is wanted whole).  Whether they are is known when some rows have
passed: they may meet few keys, or a filter.

Keeps true: what is filled is what lookups would fill, a key at a time and whole; between two slices deltas of the table
meet its present keys, as those of any partial state.  Only keys that begin the primary key are read ahead: rows that
have one lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.types import TableDef
from noria.dataflow.graph.nodes import Columns, Node, distinct, folded_keys
from noria.state import probe

if TYPE_CHECKING:
    from noria.dataflow.engine.engine import Engine

ROW_BYTES = 16  # about so much of a column, and of an index, for each row
PROBED_ROWS = 8_192  # have passed when it is decided
WORTH = 2  # lookups are foreseen of at least one row of so many
MOST_ROWS = 65_536  # of one key: of more, lookups read them one key at a time


class ReadAhead:
    """One table, by one key, for a node that looks it up."""

    def __init__(self, base: Node, columns: Columns, table: Callable[[], TableDef]):
        self.base, self.columns, self._table = base, columns, table
        self.over = False
        self.done = 0
        self._misses = base.stats.misses  # before anything was looked up for it
        self._after: bytes | None = None
        self._least = 1  # rows of a slice: that many do not have one key only

    def possible(self) -> bool:
        """Is there a state to be filled, by keys whose rows lie side by side?"""
        base = self.base
        begins = self._table().primary_key[: len(self.columns)] == self.columns
        return begins and base.state is not None and not base.full and self.columns in base.indexes

    def worth_it(self, engine: Engine, passed: int, total: int) -> bool:
        """After so many rows of all have passed, with the keys that were looked up for them?  Not where the others will
        look up few, or the table would take too much memory."""
        base, rows, most = self.base, self.total(engine), engine.builds.adhoc_bytes
        foreseen = (base.stats.misses - self._misses) * (total - passed) // max(passed, 1)
        if not self.possible() or foreseen * WORTH < rows:
            return False
        return not 0 < most < rows * (base.width + len(base.indexes) + 2) * ROW_BYTES

    def total(self, engine: Engine) -> int:
        return engine.store.row_count(self._table().name)

    def step(self, engine: Engine, rows: int) -> None:
        """About so many rows more."""
        table, rows = self._table(), max(rows, self._least)
        found, after = engine.store.scan(table.name, self._after, rows)
        batch = self.base.narrowed(found)
        self.over = after is None
        keys = self._keys(engine, batch.columns[list(self.columns)])
        whole = len(batch)
        if not self.over and len(self.columns) < len(table.primary_key):  # the last key may go on
            whole = int(np.flatnonzero((keys != keys[:, -1:]).any(axis=0)).max(initial=-1)) + 1
            if not whole:
                self.over, self._least = rows >= MOST_ROWS, 2 * rows
                return
            positions = engine.store.positions(table.name, found.take(np.array([whole - 1])))
            assert positions is not None
            after = positions[0]
        self._after = after
        self.done += whole
        self._fill(engine, batch.columns[:, :whole], np.ascontiguousarray(keys[:, :whole]))

    def _keys(self, engine: Engine, keys: Codes) -> Codes:
        folds = [self.base.fields[c].type.folds for c in self.columns]
        return np.ascontiguousarray(folded_keys(engine.symbols, folds, keys))

    def _fill(self, engine: Engine, rows: Codes, keys: Codes) -> None:
        """What is missing of these keys, whose rows are all of them."""
        wanted = distinct(keys)
        wanted = np.ascontiguousarray(wanted[:, self.base.stored.missing(self.columns, wanted)])
        if not wanted.shape[1]:
            return
        _, at = probe.pairs(wanted, keys)
        self.base.stored.fill(self.columns, wanted, Batch.of(np.ascontiguousarray(rows[:, np.sort(at)])))
        engine.note("reads", self.base, self.columns, wanted, lambda: " from disk, ahead")
