"""A table's rows under another primary key: a second family of them, with indexes of its own.

Keeps true: it holds the rows that were entered, each under its new key, and every index of it their entries; the first
family stays as it is.  Nothing looks into it before the table is defined so, which is one commit; a crash before leaves
families that go at the next start.  What enters twice is there once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy

from rocksdict import WriteBatch

from noria.core.batch import Codes
from noria.core.symbols import Symbols
from noria.core.types import TableDef
from noria.storage.rocks.engine import Engine
from noria.storage.tables.table import Index, Table

_BEHIND = b"\0" * 8  # longer than a row number, so that none is equal


class Copy:
    """table: as it will be.  A row without a primary key is under the one that it had, behind all row numbers."""

    def __init__(self, engine: Engine, was: Table, wanted: TableDef, symbols: Symbols):
        self._engine = engine
        self.table = Table(wanted, symbols)
        self.table.indexes = list(_indexes(was, wanted, self.table))
        for family in self.families():
            engine.create_family(family)

    def families(self) -> Iterator[str]:
        yield self.table.family
        yield from (i.family for i in self.table.indexes)

    def serves(self, was: Table) -> bool:
        """Has it all indexes that the table has, now that it is to become the table?  What is being built is none."""
        wanted = {i.family for i in _indexes(was, self.table.definition, self.table)}
        return not was.unfinished and wanted <= set(self.families())

    def enter(self, rows: Codes, before: list[bytes]) -> None:
        """before: the keys that the rows have in the table."""
        self._change(rows, self._keys(rows, before), self.table.rows(rows))

    def leave(self, rows: Codes, before: list[bytes]) -> None:
        self._change(rows, self._keys(rows, before), None)

    def _keys(self, rows: Codes, before: list[bytes]) -> list[bytes]:
        return self.table.keys(rows) if self.table.key else [b"\xff" + k + _BEHIND for k in before]

    def _change(self, rows: Codes, keys: list[bytes], packed: list[bytes] | None) -> None:
        """packed: of rows that come."""
        if not keys:
            return
        batch = WriteBatch(raw_mode=True)
        change(batch, self._engine, self.table.family, keys, packed)
        for index in self.table.indexes:
            entries = self.table.index_keys(index, rows, keys)
            change(batch, self._engine, index.family, entries, None if packed is None else keys)
        batch.set_default_column_family(None)  # a batch that outlives a reopening must not hold the database
        self._engine.commit(batch, sync=False)

    def give_up(self) -> None:
        self._engine.condemn(*self.families())


def switched(engine: Engine, table: Table, wanted: TableDef, going: list[Table]) -> list[Table]:
    """The table's rows are those of its copy from now on; or those of before, where that is taken back.  going: what
    goes with the next commit; returns it as it is then."""
    back = next((t for t in going if (t.definition.table_id, t.definition.keyed) == (wanted.table_id, wanted.keyed)),
                None)
    if back is not None:
        engine.condemn(table.family, *(i.family for i in table.indexes))
        table.indexes = back.indexes
        table.counters = table.counters._replace(auto_increment=back.counters.auto_increment)
        return [t for t in going if t is not back]
    fitting = table.fitting
    assert fitting is not None and fitting.copy is not None, "`refuse_unfit` comes before"
    before = copy(table)
    before.fitting, before.building, before.awaited = None, [], []
    engine.condemn(*fitting.passing)
    table.indexes = fitting.copy.table.indexes
    return [*going, before]


def change(batch: WriteBatch, engine: Engine, family: str, keys: list[bytes], values: list[bytes] | None) -> None:
    """Put the keys' values into the family, or without values take the keys out."""
    batch.set_default_column_family(engine.handle(family))
    if values is None:
        deque(map(batch.delete, keys), maxlen=0)
    else:
        deque(map(batch.__setitem__, keys, values), maxlen=0)


def _indexes(was: Table, wanted: TableDef, later: Table) -> Iterator[Index]:
    """Those that the table has, as far as their columns stay, and the UNIQUE ones that it is to have.  Rows go on being
    found by the key that they had."""
    unique = {i.columns: i.name for i in wanted.indexes if i.unique}
    yield from (Index.of(wanted, columns, True, name) for columns, name in unique.items())
    plain = dict.fromkeys(i.columns for i in (*was.indexes, *was.unfinished) if not i.unique)
    if was.key and was.key != wanted.primary_key[: len(was.key)]:
        plain[was.key] = None
    yield from (Index.of(wanted, columns) for columns in plain
                if not any(wanted.columns[c].dropped for c in columns) and columns != later.key)
