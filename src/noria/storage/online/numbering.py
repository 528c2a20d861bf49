"""Numbers the existing rows of a table that gets an AUTO_INCREMENT column, while the table is written.

Keeps true: a row keeps its first number, whatever else of it changes, as long as its key stays.  Two rows never have
the same number.  The numbers are stored by key in a family outside the catalog, which is dropped with the change.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
from rocksdict import WriteBatch

from noria.core.batch import Codes
from noria.core.errors import auto_increment_exhausted
from noria.core.expressions.coerce import integer_bounds
from noria.core.integers import span
from noria.core.types import TableDef
from noria.storage.format.catalog import family_of
from noria.storage.online.rekeying import change
from noria.storage.rocks.engine import RocksEngine
from noria.storage.tables.table import StoredTable

_NUMBER = struct.Struct("<q")


class RowNumbering:
    """column: the position of the numbers; next: the number of the next row that has none.

    anew: no remaining column has generated values before.
    """

    def __init__(self, engine: RocksEngine, was: StoredTable, wanted: TableDef, column: int):
        self._engine, self._column = engine, column
        self._most, self._name = integer_bounds(wanted.columns[column])[1], wanted.columns[column].name
        old = was.definition.auto_increment
        self.anew = old is None or bool(wanted.columns[old].dropped)
        self.family = family_of(wanted) + ".numbers"
        self.next = wanted.first_id if self.anew else max(wanted.first_id, was.counters.auto_increment + 1)
        engine.create_family(self.family, rows=was.counters.rows)

    def assign(self, rows: Codes, keys: list[bytes]) -> None:
        """Fill the rows' column with numbers.  Raises SqlError 1467 if its type has too few."""
        numbers = self._known(keys)
        new = np.flatnonzero(numbers == 0)
        if len(new):
            first = self.next
            if first + len(new) - 1 > self._most:
                raise auto_increment_exhausted(self._name)
            self.next = first + len(new)
            numbers[new] = span(first, len(new))
            self._change([keys[r] for r in new.tolist()], [_NUMBER.pack(n) for n in numbers[new].tolist()])
        rows[self._column] = numbers

    def found(self, rows: Codes, keys: list[bytes]) -> tuple[Codes, list[bytes]]:
        """The rows that have a number, with it, and their keys."""
        numbers = self._known(keys)
        there = np.flatnonzero(numbers)
        rows = rows[:, there]
        rows[self._column] = numbers[there]
        return rows, [keys[r] for r in there.tolist()]

    def forget(self, keys: list[bytes]) -> None:
        if keys:
            self._change(keys, None)

    def _known(self, keys: list[bytes]) -> npt.NDArray[np.int64]:
        """The number of each key; 0: it has none."""
        held = self._engine.get(self.family, keys)
        return np.array([0 if h is None else _NUMBER.unpack(h)[0] for h in held], np.int64)

    def _change(self, keys: list[bytes], values: list[bytes] | None) -> None:
        batch = WriteBatch(raw_mode=True)
        change(batch, self._engine, self.family, keys, values)
        batch.set_default_column_family(None)
        self._engine.commit(batch, sync=False)
