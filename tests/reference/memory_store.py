"""Base tables in memory: the data-flow's `BaseStore` for tests and for benches without a disk."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.limits import NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.dataflow.graph.protocols import TooManyRows
from noria.dataflow.transactions.locks import LockTable
from noria.state.rows.table import Table
from noria.storage.transactions.history import History


class IndexBuild:
    """Cannot be looked up before its last slice."""

    def __init__(self, store: MemoryStore, table: str, columns: tuple[int, ...]):
        self._store, self._table, self._columns = store, table, columns
        self.done, self.over = 0, False

    @property
    def total(self) -> int:
        return self._store.row_count(self._table)

    def step(self, rows: int) -> bool:
        self.done += rows
        if self.done >= self.total and not self.over:
            self.over = True
            self._store.add_index(self._table, self._columns)
        return self.over

    awaits = False

    def deliver(self, files: object) -> None:
        raise NotImplementedError

    def in_slices(self) -> None:
        pass

    def restart(self) -> None:
        self.done = 0

    def abandon(self) -> None:
        self.over = True


class KeyedScan:
    """Places are ordinals of keys with primary keys."""

    def __init__(self, store: MemoryStore, table: str, columns: tuple[int, ...], keys: Codes):
        self._store, self._table, self._columns, self._keys = store, table, columns, keys
        self._after: tuple[int, bytes] = (-1, b"")
        self.over = False

    def next(self, rows: int) -> tuple[Batch, Codes]:
        found, ordinals = self._store.lookup(self._table, self._columns, self._keys)
        places = self._places(found, ordinals)
        left = sorted((p, i) for i, p in enumerate(places) if p > self._after)
        self.over = len(left) <= rows
        some = np.array([i for _, i in left[:rows]], np.int64)
        if len(some):
            self._after = left[len(some) - 1][0]
        return found.take(some), ordinals[some]

    def _places(self, rows: Batch, ordinals: Codes) -> list[tuple[int, bytes]]:
        positions = self._store.positions(self._table, rows)
        assert positions is not None
        return list(zip(ordinals.tolist(), positions, strict=True))

    def passed(self, rows: Batch, ordinals: Codes) -> npt.NDArray[np.bool_]:
        return np.array([self.over or p <= self._after for p in self._places(rows, ordinals)], np.bool_)

    def same(self) -> bool:
        return self._table in self._store.tables()


class NoTransactions:
    """A `Staging` in which nobody has a transaction."""

    def __init__(self) -> None:
        self.locks, self.history = LockTable(), History()

    def __len__(self) -> int:
        return 0

    def held(self) -> Iterator[Codes]:
        return iter(())


class MemoryStore:
    """`put` stores a delta (before the tick that carries it)."""

    def __init__(self, symbols: Symbols):
        self.symbols, self.transactions = symbols, NoTransactions()
        self._defs: dict[str, TableDef] = {}
        self._rows: dict[str, Table] = {}

    def create_table(self, table: TableDef) -> None:
        self._defs[table.name] = table
        self._rows[table.name] = Table(len(table.columns), [c.type.folds for c in table.columns], self.symbols,
                                       full=True, name=table.name)
        if table.primary_key:
            self.add_index(table.name, table.primary_key)

    def drop_table(self, name: str) -> None:
        del self._defs[name], self._rows[name]

    def alter_table(self, table: TableDef, fits: bool = False) -> None:
        """The table of this id has another name."""
        was = next(t for t in self._defs.values() if t.table_id == table.table_id)
        del self._defs[was.name]
        self._defs[table.name], self._rows[table.name] = table, self._rows.pop(was.name)

    def tables(self) -> dict[str, TableDef]:
        return dict(self._defs)

    def add_index(self, table: str, columns: tuple[int, ...], work: object = None) -> None:
        self._rows[table].add_index(columns)

    def begin_index(self, table: str, columns: tuple[int, ...], awaited: bool = False) -> IndexBuild | None:
        return None if columns in self._rows[table].indexes else IndexBuild(self, table, columns)

    def positions(self, table: str, rows: Batch) -> list[bytes] | None:
        """Primary keys as bytes, folded."""
        key = self._defs[table].primary_key
        if not key:
            return None
        folds = [self._defs[table].columns[c].type.folds for c in key]
        codes = [self.symbols.folded(rows.columns[c]) if f else rows.columns[c]
                 for c, f in zip(key, folds, strict=True)]
        return [b"".join((code + 2**63).to_bytes(8, "big") for code in row) for row in np.stack(codes).T.tolist()]

    def unbuilt(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return ()

    def tidy(self) -> bool:
        return False

    def flush_ahead(self, least_bytes: int) -> bool:
        return True

    def trim_indexes(self, table: str, needed: object, most: int) -> None:
        """They cost little here."""

    def put(self, table: str, delta: Batch) -> None:
        self._rows[table].apply(delta)

    def lookup(self, table: str, columns: tuple[int, ...], keys: Codes, texts: Collection[int] | None = None,
               most: int = 0) -> tuple[Batch, Codes]:
        rows, ordinal = self._rows[table].lookup(columns, np.ascontiguousarray(keys))
        if most and self._defs[table].primary_key and len(rows) > most:
            raise TooManyRows
        return self._blanked(table, rows, texts), ordinal

    def begin_lookup(self, table: str, columns: tuple[int, ...], keys: Codes) -> KeyedScan:
        return KeyedScan(self, table, columns, keys)

    def finds(self, table: str, columns: tuple[int, ...]) -> bool:
        return columns in self._rows[table].indexes

    def serves(self, table: str, columns: tuple[int, ...]) -> bool:
        return self.finds(table, columns)

    def within(self, table: str, columns: tuple[int, ...], keys: Codes, rows: int) -> bool:
        return len(self.lookup(table, columns, keys)[0]) <= rows

    def values_between(self, table: str, column: int, low: int, high: int) -> Codes:
        values = np.unique(self._rows[table].rows().columns[column])
        return values[(values >= low) & (values <= high)]

    def reach(self, table: str, column: int, low: int, high: int, rows: int, descending: bool) -> int:
        values = np.sort(self._rows[table].rows().columns[column])
        values = values[(values >= low) & (values <= high)]
        if len(values) < rows:
            return low if descending else high
        return int(values[-rows] if descending else values[rows - 1])

    def scan(self, table: str, after: bytes | None, rows: int, texts: Collection[int] | None = None
             ) -> tuple[Batch, bytes | None]:
        """Bags at once."""
        found = self._rows[table].rows()
        keys = self.positions(table, found)
        if keys is None:
            return self._blanked(table, found, texts), None
        left = sorted((k, i) for i, k in enumerate(keys) if after is None or k > after)
        part = found.take(np.array([i for _, i in left[:rows]], np.int64))
        return self._blanked(table, part, texts), left[rows - 1][0] if len(left) > rows else None

    def _blanked(self, table: str, rows: Batch, texts: Collection[int] | None) -> Batch:
        """Without the texts that nobody looks at."""
        columns = rows.columns.copy()
        for i, c in enumerate(self._defs[table].columns):
            if texts is not None and i not in texts and c.type.is_text:
                columns[i] = NULL_CODE
        return Batch(columns, rows.weights)

    def memory(self) -> int:
        return 0

    def hold_memory(self, limit: int) -> None:
        pass

    def damage_of(self, name: str) -> None:
        return None

    def row_count(self, table: str) -> int:
        return len(self._rows[table])

    def rows(self, table: str) -> Batch:
        return self._rows[table].rows()
