"""Do a table's rows fit columns that are to be defined in another way?  Looked at while the table is written.

Keeps true: from the first slice on the rows of every write are looked at, too; so when all slices are done and nothing
was found, every row fits, and goes on fitting until the table is defined so (`RocksStore.alter_table`).  What does not
fit ends the change, never a write.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noria.core.batch import Codes
from noria.core.errors import SqlError
from noria.core.limits import NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Column, SqlType, TableDef
from noria.core.values import recode
from noria.storage.engine import Engine
from noria.storage.table import Table


def refitted(was: TableDef, table: TableDef) -> list[tuple[int, SqlType, Column]]:
    """The columns whose values must fit another definition: where they are now, their type, and what they become."""
    found = [(at, old.type, new) for at, (old, new) in enumerate(zip(was.columns, table.columns, strict=False))
             if not new.dropped and (old.type, old.nullable) != (new.type, new.nullable)]
    more = table.columns[len(was.columns):]
    return found + [(c.source, was.columns[c.source].type, c) for c in more if c.source is not None]


def _types(columns: list[tuple[int, SqlType, Column]]) -> list[tuple[int, SqlType, SqlType, bool]]:
    return [(at, source, column.type, column.nullable) for at, source, column in columns]


class Fitting:
    """Implements dataflow.protocols.Fitting.  readable: raises the SqlError of a damaged table."""

    def __init__(self, engine: Engine, table: Table, wanted: TableDef, symbols: Symbols,
                 readable: Callable[[], object]):
        self._engine, self._table, self._symbols, self._readable = engine, table, symbols, readable
        self._columns = refitted(table.definition, wanted)
        self._after: bytes | None = None  # the key up to which rows were looked at
        self.error: SqlError | None = None
        self.done, self.over = 0, not self._columns
        table.fitting = self

    @property
    def total(self) -> int:
        return self._table.counters.rows

    def step(self, rows: int) -> bool:
        """Look at the next rows; True when all were looked at, or one that does not fit was found."""
        if self.over:
            return True
        self._readable()
        first = None if self._after is None else self._after + b"\0"  # the least key above it
        pairs = self._engine.items(self._table.family, rows, first)
        if pairs:
            self.look(self._table.codes([v for _, v in pairs]), self.done)
            self._after, self.done = pairs[-1][0], self.done + len(pairs)
        self.over = self.over or len(pairs) < rows
        return self.over

    def look(self, rows: Codes, before: int = 0) -> None:
        """Do these rows fit?  before: how many were looked at before these."""
        for at, source, column in self._columns:
            try:
                self._fits(rows[at], source, column, before)
            except Exception as e:  # a defect ends the change as well
                found = e if isinstance(e, SqlError) else SqlError(1105, "HY000", f"{e.__class__.__name__}: {e}")
                self.error, self.over = SqlError(found.code, found.state, found.message), True
                return

    def _fits(self, codes: Codes, source: SqlType, column: Column, before: int) -> None:
        if not column.nullable and bool((codes == NULL_CODE).any()):
            row = before + 1 + int(np.argmax(codes == NULL_CODE))
            raise SqlError(1138, "22004", f"Invalid use of NULL value: column '{column.name}' is NULL at row {row}")
        recode(codes, source, column, before + 1, self._symbols)

    def same(self, wanted: TableDef) -> bool:
        """Are these the columns that the rows were looked at for?"""
        return _types(self._columns) == _types(refitted(self._table.definition, wanted))

    def again(self) -> None:
        """Rows came beside all writes: begin at the first one again."""
        if self.error is None:
            self._after, self.done, self.over = None, 0, not self._columns

    def give_up(self) -> None:
        """Writes are looked at no more."""
        if self._table.fitting is self:
            self._table.fitting = None
