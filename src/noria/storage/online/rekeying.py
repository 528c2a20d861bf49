"""Copies a table's rows under another primary key: a second family of rows, with indexes of its own.

Keeps true: the copy holds the entered rows, each under its new key, and each of its indexes holds their entries.  The
first family stays as it is.  Nothing reads the copy before the table is redefined, which is one commit; after an
earlier crash the next start drops its families.  Entering a row twice has no further effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

from rocksdict import WriteBatch

from noria.core.batch import Codes
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.storage.rocks.engine import RocksEngine
from noria.storage.tables.table import Index, StoredTable

_BEHIND = b"\0" * 8  # longer than a row number, so that none is equal


class RekeyedCopy:
    """table: the later table.  Without a primary key, a row's key is its former one, placed behind all row numbers."""

    def __init__(self, engine: RocksEngine, was: StoredTable, wanted: TableDef, symbols: Symbols):
        self._engine = engine
        self.table = StoredTable(wanted, symbols)
        self.table.indexes = list(_indexes(was, wanted, self.table))
        for family in self.families():
            engine.create_family(family, rows=was.counters.rows)

    def families(self) -> Iterator[str]:
        yield self.table.family
        yield from (i.family for i in self.table.indexes)

    def serves(self, was: StoredTable) -> bool:
        """True if the copy has every index that the table has now; unfinished indexes prevent it."""
        wanted = {i.family for i in _indexes(was, self.table.definition, self.table)}
        return not was.unfinished and wanted <= set(self.families())

    def enter(self, rows: Codes, before: list[bytes]) -> None:
        """Copy rows.  before: their keys in the table."""
        self._change(rows, self._keys(rows, before), self.table.rows(rows))

    def leave(self, rows: Codes, before: list[bytes]) -> None:
        self._change(rows, self._keys(rows, before), None)

    def _keys(self, rows: Codes, before: list[bytes]) -> list[bytes]:
        return self.table.keys(rows) if self.table.key else [b"\xff" + k + _BEHIND for k in before]

    def _change(self, rows: Codes, keys: list[bytes], packed: list[bytes] | None) -> None:
        """Put or delete the rows and their entries.  packed: the packed rows to put; None: delete."""
        if not keys:
            return
        batch = WriteBatch(raw_mode=True)
        change(batch, self._engine, self.table.family, keys, packed)
        for index in self.table.indexes:
            entries = self.table.index_keys(index, rows, keys)
            change(batch, self._engine, index.family, entries, None if packed is None else keys)
        batch.set_default_column_family(None)  # a batch that outlives a reopening must not hold the database
        self._engine.commit(batch, sync=False)

    def abandon(self) -> None:
        self._engine.condemn(*self.families())


def switched(engine: RocksEngine, table: StoredTable, wanted: TableDef, going: list[StoredTable]) -> list[StoredTable]:
    """Replace the table's rows by those of its copy, or restore the former rows if the change is undone.

    going: the tables that are dropped with the next commit; returns their new list.
    """
    back = next((t for t in going if (t.definition.table_id, t.definition.keyed) == (wanted.table_id, wanted.keyed)),
                None)
    if back is not None:
        engine.condemn(table.family, *(i.family for i in table.indexes))
        table.indexes = back.indexes
        table.counters = table.counters._replace(auto_increment=back.counters.auto_increment)
        return [t for t in going if t is not back]
    fitting = table.fitting
    assert fitting is not None and fitting.copied is not None, "`refuse_unfit` comes before"
    before = copy(table)
    before.fitting, before.building, before.awaited = None, [], []
    engine.condemn(*fitting.passing)
    table.indexes = fitting.copied.indexes
    return [*going, before]


def change(batch: WriteBatch, engine: RocksEngine, family: str, keys: list[bytes], values: list[bytes] | None) -> None:
    """Put the keys' values into the family; without values delete the keys."""
    if values is None:
        engine.fill(batch, family, keys, (), ())
    else:
        engine.fill(batch, family, (), keys, values)


def _indexes(was: StoredTable, wanted: TableDef, later: StoredTable) -> Iterator[Index]:
    """The table's indexes, as far as their columns remain, and the UNIQUE indexes of the later definition.

    The former key becomes an index, so that rows are still found by it.
    """
    unique = {i.columns: i.name for i in wanted.indexes if i.unique}
    yield from (Index.of(wanted, columns, True, name) for columns, name in unique.items())
    plain = dict.fromkeys(i.columns for i in (*was.indexes, *was.unfinished) if not i.unique)
    if was.key and was.key != wanted.primary_key[: len(was.key)]:
        plain[was.key] = None
    yield from (Index.of(wanted, columns) for columns in plain
                if not any(wanted.columns[c].dropped for c in columns) and columns != later.key)
