"""Checks, while a table is written, whether its rows fit another definition.

The definition may have columns of other types, new CHECKs, new UNIQUE indexes or another primary key.
`RocksDefinitionCheck.step` checks a slice of the rows.

Keeps true: from the first slice on, the rows of every write are checked, too.  So when all slices are done without an
error, every row fits, until the table gets its new definition (`TableDefinitions.alter_table`).

* A new UNIQUE index is filled on the way: it has an entry for each checked row that still exists.  Nothing reads the
  index before the table is redefined.  After a crash before that, the next start drops its family.
* Under another primary key the rows are copied (`rekeying`).  Temporary entries enforce UNIQUE, and go with the old
  rows.  The same holds for a new column that numbers the rows (`numbering`).
* A row that does not fit ends the change, never a write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from rocksdict import WriteBatch

from noria.core.batch import Codes
from noria.core.errors import SqlError, view_changed
from noria.core.errors.codes import INVALID_USE_OF_NULL, UNKNOWN_ERROR
from noria.core.limits import NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Column, IndexDef, SqlType, TableDef
from noria.core.values import recode_all
from noria.storage.format.catalog import family_of
from noria.storage.online.comparing import UniqueComparison
from noria.storage.online.numbering import RowNumbering
from noria.storage.online.rekeying import RekeyedCopy, change
from noria.storage.rocks.engine import RocksEngine
from noria.storage.tables.rules import new_rules, refuse_broken
from noria.storage.tables.table import Changed, Index, StoredTable

Refitted = tuple[int, SqlType, Column]  # the position of a column's values, their type, and the later column


def refitted(was: TableDef, table: TableDef) -> list[Refitted]:
    """The columns whose values must fit another definition."""
    found = [(at, old.type, new) for at, (old, new) in enumerate(zip(was.columns, table.columns, strict=False))
             if not new.dropped and (old.type, old.nullable) != (new.type, new.nullable)]
    more = table.columns[len(was.columns):]
    return found + [(c.source, was.columns[c.source].type, c) for c in more if c.source is not None]


def made_unique(was: TableDef, table: TableDef) -> list[IndexDef]:
    """The UNIQUE indexes that only the later definition has."""
    known = {i.columns for i in was.indexes if i.unique}
    return [i for i in table.indexes if i.unique and i.columns not in known]


def counts_anew(was: TableDef, table: TableDef) -> int | None:
    """The column that generates AUTO_INCREMENT values from now on, if it is another one; they exceed its values."""
    return table.auto_increment if table.auto_increment != was.auto_increment else None


def unlike(was: TableDef, table: TableDef) -> bool:
    """True if the rows must be checked before the table gets the later definition."""
    return bool(refitted(was, table) or made_unique(was, table) or was.keyed != table.keyed
                or counts_anew(was, table) is not None or new_rules(was, table) or _new_generated(was, table))


def _new_generated(was: TableDef, table: TableDef) -> list[tuple[int, Column]]:
    """The generated columns that only the later definition has."""
    return [(at, replace(table.columns[at], added=0)) for at in table.generated if at >= len(was.columns)]


def refuse_unfit(table: StoredTable, wanted: TableDef) -> None:
    """Raise SqlError if the rows do not fit, or were not checked."""
    if not unlike(table.definition, wanted):
        return
    fitting = table.fitting
    if fitting is None or not fitting.over or not fitting.same(wanted):
        raise view_changed(wanted.name)
    if fitting.error is not None:
        raise SqlError(fitting.error.code, fitting.error.state, fitting.error.message)


def entries_of(table: StoredTable, wanted: TableDef, columns: tuple[int, ...], what: str, arguments: tuple[bytes, ...]
               ) -> object:
    """Answer as `BaseStore.entries` does."""
    refuse_unfit(table, wanted)
    if not isinstance(table.fitting, RocksDefinitionCheck):
        raise view_changed(wanted.name)
    return table.fitting.comparing[columns].answer(what, arguments)


def set_unique(table: StoredTable, wanted: TableDef,
               undeclared: list[tuple[StoredTable, Index]]) -> list[tuple[StoredTable, Index]]:
    """Set the table's UNIQUE indexes to the declared ones, including those that were filled.

    undeclared: the (table, index) pairs that are no longer declared but still exist; returns their new list.
    """
    names = {i.columns: i.name for i in wanted.indexes if i.unique}
    known = {i.columns for i in table.indexes if i.unique}
    filled = [*(table.fitting.unique if table.fitting is not None else ()), *(i for t, i in undeclared if t is table)]
    table.indexes += [i for i in filled if i.columns in names and i.columns not in known]
    removed = [i for i in table.indexes if i.unique and i.columns not in names]
    table.indexes = [replace(i, name=names[i.columns]) if i.unique else i for i in table.indexes if i not in removed]
    return [(t, i) for t, i in undeclared if t is not table] + [(table, i) for i in removed]


class RocksDefinitionCheck:
    """Implements dataflow.graph.protocols.DefinitionCheck.

    unique: the indexes that it fills; readable: raises the SqlError of a damaged table.
    """

    def __init__(self, engine: RocksEngine, table: StoredTable, wanted: TableDef, symbols: Symbols,
                 readable: Callable[[], object]):
        self._engine, self._table, self._symbols, self._readable = engine, table, symbols, readable
        if table.fitting is not None:
            table.fitting.abandon()
        was = table.definition
        self._wanted, self._later = wanted, StoredTable(wanted, symbols)
        self._columns, self._counting = refitted(was, wanted), counts_anew(was, wanted)
        self._rules, self._generated = new_rules(was, wanted), _new_generated(was, wanted)
        self.unique = [Index.of(wanted, i.columns, True, i.name) for i in made_unique(was, wanted)]
        self.copy = None if was.keyed == wanted.keyed else RekeyedCopy(engine, table, wanted, symbols)
        if self.copy is not None:
            self.unique = [*(replace(i, family=i.family + ".once") for i in self.unique), *_primary(was, wanted)]
        column = wanted.numbered(was)
        self._numbers = None if column is None else RowNumbering(engine, table, wanted, column)
        for index in self.unique:
            engine.create_family(index.family, rows=table.counters.rows)
        self.comparing = {i.columns: UniqueComparison(engine, i, partial(self._taken, i)) for i in self.unique}
        self._after: bytes | None = None  # the key up to which rows were checked
        self.error: SqlError | None = None
        self.top = 0  # the greatest value in the column that generates values from now on
        self.done, self.over = 0, not unlike(was, wanted)
        table.fitting = self

    @property
    def reached(self) -> int:
        """The value after which AUTO_INCREMENT continues, whatever the rows have."""
        return 0 if self._numbers is not None and self._numbers.anew else self._table.counters.auto_increment

    @property
    def copied(self) -> StoredTable | None:
        return None if self.copy is None else self.copy.table

    @property
    def total(self) -> int:
        return self._table.counters.rows

    def same(self, wanted: TableDef) -> bool:
        """True if the rows were checked for this definition."""
        was = self._table.definition
        if self.copy is not None and not self.copy.serves(self._table):
            return False
        if self._generated != _new_generated(was, wanted):
            return False
        return (_types(self._columns) == _types(refitted(was, wanted)) and self._counting == counts_anew(was, wanted)
                and (self._wanted.keyed, self._wanted.primary_key) == (wanted.keyed, wanted.primary_key)
                and made_unique(was, self._wanted) == made_unique(was, wanted)
                and {r.condition for r in self._rules} >= {r.condition for r in new_rules(was, wanted)})

    def step(self, rows: int) -> bool:
        """Check the next rows; True when all were checked or one does not fit."""
        if self.over:
            return True
        self._readable()
        first = None if self._after is None else self._after + b"\0"  # the least key above it
        pairs = self._engine.items(self._table.family, rows, first)
        if pairs:
            values, keys = [v for _, v in pairs], [k for k, _ in pairs]
            self._try(lambda: self._look(self._table.codes(values), keys, self.done))
            self._after, self.done = keys[-1], self.done + len(pairs)
        self.over = self.over or len(pairs) < rows
        return self.over

    def written(self, changed: Callable[[], Changed]) -> None:
        """Check the rows that a commit removed and added."""
        if self.error is not None:
            return

        def look() -> None:
            left, removed, keys, added = changed()
            self._without(removed, left)
            self._look(added, keys, 0)
            if self._numbers is not None:
                self._numbers.forget(list(set(left) - set(keys)))

        self._try(look)

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception as e:  # a defect ends the change as well
            found = e if isinstance(e, SqlError) else SqlError(*UNKNOWN_ERROR, f"{e.__class__.__name__}: {e}")
            self.error, self.over = SqlError(found.code, found.state, found.message), True

    def _look(self, rows: Codes, keys: list[bytes], before: int) -> None:
        """Check rows with their keys and add their entries.  before: how many rows were checked before these."""
        for at, source, column in self._columns:
            self._fits(rows[at], source, column, before)
        if not keys or not (self.unique or self.copy or self._rules or self._generated
                            or self._counting is not None):
            return
        rows = self._as_later(rows)
        refuse_broken(self._rules, rows, self._symbols)
        if self._numbers is not None:
            self._numbers.assign(rows, keys)
        for index in self.unique:
            self._enter(index, rows, keys)
        if self.copy is not None:
            self.copy.enter(rows, keys)
        if self._counting is not None:
            self.top = max(self.top, int(rows[self._counting].max()))

    def _as_later(self, rows: Codes) -> Codes:
        """The rows with the columns of the later definition."""
        if self._later.width == self._table.width:
            return rows
        return self._later.codes(self._table.rows(rows))

    def _fits(self, codes: Codes, source: SqlType, column: Column, before: int) -> None:
        if not column.nullable and bool((codes == NULL_CODE).any()):
            row = before + 1 + int(np.argmax(codes == NULL_CODE))
            raise SqlError(*INVALID_USE_OF_NULL,
                           f"Invalid use of NULL value: column '{column.name}' is NULL at row {row}")
        recode_all(codes, source, column, before + 1, self._symbols)

    # ---------------------------------------------------------------- UNIQUE indexes
    def _enter(self, index: Index, rows: Codes, keys: list[bytes]) -> None:
        """Add the rows' entries to an index.  Raises SqlError 1062 if another row has one of them."""
        entries = self._later.index_keys(index, rows, keys)
        mine: dict[bytes, bytes] = {}
        for row, (entry, key, held) in enumerate(zip(entries, keys, self._engine.get(index.family, entries),
                                                     strict=True)):
            if mine.setdefault(entry, held or key) != key:
                raise self._later.duplicate(index, rows[:, row])
        self._put(index, list(mine), list(mine.values()))
        self.comparing[index.columns].note(mine)

    def _without(self, rows: Codes, keys: list[bytes]) -> None:
        """Delete the entries and the copies of removed rows, if they have any."""
        if not keys or not (self.unique or self.copy):
            return
        rows = self._as_later(rows)
        if self._numbers is not None:
            rows, keys = self._numbers.found(rows, keys)
        for index in self.unique:
            entries = self._later.index_keys(index, rows, keys)
            held = self._engine.get(index.family, entries)
            self._put(index, [e for e, k, h in zip(entries, keys, held, strict=True) if h == k])
        if self.copy is not None:
            self.copy.leave(rows, keys)

    def _taken(self, index: Index, key: bytes) -> SqlError:
        """Error 1062 for the row that has this key."""
        return self._later.duplicate(index, self._as_later(self._table.codes(self._engine.get(
            self._table.family, [key])))[:, 0])

    def _put(self, index: Index, entries: list[bytes], values: list[bytes] | None = None) -> None:
        batch = WriteBatch(raw_mode=True)
        change(batch, self._engine, index.family, entries, values)
        batch.set_default_column_family(None)
        self._engine.commit(batch, sync=False)

    def restart(self) -> None:
        """Restart at the first row, because rows were loaded without a write."""
        if self.error is None:
            self._after, self.done, self.over = None, 0, not unlike(self._table.definition, self._wanted)

    def abandon(self) -> None:
        """Abandon the change: check no more writes, drop all temporary families."""
        if self._table.fitting is self:
            self._table.fitting, self.over = None, True
            self.error = self.error or view_changed(self._table.name)
            self._engine.condemn(*self.passing)
            if self.copy is not None:
                self.copy.abandon()

    @property
    def passing(self) -> list[str]:
        """The temporary families, which are dropped when the rows get a copy."""
        numbers = [] if self._numbers is None else [self._numbers.family]
        return [*(i.family for i in self.unique), *numbers]


def _primary(was: TableDef, wanted: TableDef) -> list[Index]:
    """The temporary index that enforces a new primary key."""
    key = wanted.primary_key
    return [Index(key, True, "PRIMARY", family_of(wanted) + ".once")] if key and key != was.primary_key else []


def _types(columns: list[Refitted]) -> list[tuple[int, SqlType, SqlType, bool]]:
    return [(at, source, column.type, column.nullable) for at, source, column in columns]
