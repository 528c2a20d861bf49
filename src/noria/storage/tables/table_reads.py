"""Reads of stored rows: by keys, in slices, and of ranges of an index.

Keeps true: a table with an unreadable file is not read.  Its error names the table (`OpenTables.damage_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from noria.core.batch import Batch, Codes, Texts
from noria.core.integers import codes_of
from noria.storage.format.encoding import first_codes
from noria.storage.rocks.engine import RocksEngine
from noria.storage.tables import lookups
from noria.storage.tables.open_tables import OpenTables


class TableReads:
    """Reads the rows of all tables, as `dataflow.graph.protocols.BaseStore` says."""

    def __init__(self, engine: RocksEngine, tables: OpenTables):
        self._engine, self._tables = engine, tables

    def lookup(self, table: str, columns: tuple[int, ...], keys: Codes, texts: Texts = None, most: int = 0
               ) -> tuple[Batch, Codes]:
        """Look rows up as the protocol says; needs a key or index whose first columns these are (`add_index`)."""
        source = self._tables.readable(table)
        index, order = lookups.access(source, columns)
        if not keys.shape[1]:
            return Batch.empty(source.width), np.empty(0, np.int64)
        starts = lookups.prefixes(source, columns, order, keys)
        if index is None and order == source.key:
            values, ordinals = lookups.present(self._engine.get(source.family, starts), np.arange(len(starts)))
        else:
            values, ordinals = lookups.under(self._engine, source, index, starts, most)
        some = texts if texts is None or len(order) == len(columns) else {*texts, *columns}
        rows, ordinals = lookups.agreeing(source, columns, order, keys, source.codes(values, some), ordinals)
        return Batch.of(rows), ordinals

    def begin_lookup(self, table: str, columns: tuple[int, ...], keys: Codes) -> lookups.RocksKeyedScan:
        return lookups.RocksKeyedScan(self._engine, self._tables.readable(table), columns, keys)

    def finds(self, table: str, columns: tuple[int, ...]) -> bool:
        return self._tables.table(table).way(columns) is not None

    def serves(self, table: str, columns: tuple[int, ...]) -> bool:
        return self._tables.table(table).serving(columns) is not None

    def within(self, table: str, columns: tuple[int, ...], keys: Codes, rows: int) -> bool:
        """Count rows as the protocol says."""
        source = self._tables.readable(table)
        index, order = lookups.access(source, columns)
        if order == (source.key if index is None else index.columns) and (index is None or index.unique):
            return int(keys.shape[1]) <= rows
        family = source.family if index is None else index.family
        for prefix in lookups.prefixes(source, columns, order, keys):
            rows -= self._engine.count_with_prefix(family, prefix, rows + 1)
            if rows < 0:
                return False
        return True

    def scan(self, table: str, after: bytes | None, rows: int, texts: Texts = None) -> tuple[Batch, bytes | None]:
        source = self._tables.readable(table)
        start = None if after is None else after + b"\0"  # the least key above it
        if source.key:
            values = self._engine.values(source.family, rows, start)
            codes = source.codes(values, None if texts is None else {*texts, *source.key})
            return Batch.of(codes), source.keys(codes[:, -1:])[0] if len(values) == rows else None
        pairs = self._engine.items(source.family, rows, start)
        codes = source.codes([v for _, v in pairs], texts)
        return Batch.of(codes), pairs[-1][0] if len(pairs) == rows else None

    def values_between(self, table: str, column: int, low: int, high: int) -> Codes:
        """Return values as the protocol says, from the index keys alone: each begins with the column's 8 bytes."""
        return first_codes(list(self._index_keys(table, column, low, high)))

    def reach(self, table: str, column: int, low: int, high: int, rows: int, descending: bool) -> int:
        """Find the end of a range as the protocol says."""
        keys = list(islice(self._index_keys(table, column, low, high, descending), rows))
        if len(keys) < rows:
            return low if descending else high
        return int(first_codes(keys[-1:])[0])

    def _index_keys(self, table: str, column: int, low: int, high: int, descending: bool = False) -> Iterator[bytes]:
        """The keys of an index that begins with the column, from low to high."""
        source = self._tables.readable(table)
        access = source.access((column,))
        if access is None:
            raise KeyError(f"no index of {table} on column {column}: add_index first")
        family = source.family if access[0] is None else access[0].family
        first, last = source.columns_key([codes_of((low, high))], (column,))
        return self._engine.keys_between(family, first, last, descending)

    def positions(self, table: str, rows: Batch) -> list[bytes] | None:
        source = self._tables.table(table)
        return source.keys(rows.columns) if source.key else None

    def row_count(self, table: str) -> int:
        return self._tables.table(table).counters.rows
