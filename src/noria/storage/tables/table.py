"""One base table on disk: its families, and the encoding of codes as keys and rows.

A family is a column family of RocksDB, or a part of one (`rocks/shared.py`).  A table's rows are in family `t<id>`
under the primary key.  A table without one is a bag: its key is an invisible row
number of 8 bytes, so equal rows stay several rows.  An index is a family of its own that maps (index columns, key) to
key.  A UNIQUE index maps (index columns) to key.  A row with a NULL in it equals no other row and is stored as in a
plain index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.errors import SqlError, duplicate_entry, null_not_allowed, value_overflow
from noria.core.identifiers import without_database
from noria.core.integers import codes_of, span
from noria.core.limits import ERROR_CODE, MIN_INT, NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import BIGINT, TableDef
from noria.core.values import decode, encode, recode_all
from noria.storage.format.catalog import family_of, index_family_of
from noria.storage.format.encoding import keys_of, rows_of, unpack_rows
from noria.storage.tables.computed import computed_of
from noria.storage.tables.rules import Rule, rules_of
from noria.storage.tables.shards import Shard

Changed = tuple[list[bytes], Codes, list[bytes], Codes]  # net: keys and rows removed, keys and rows added


@dataclass(frozen=True)
class Index:
    """An index of a table; `name` is the name in MySQL's messages."""

    columns: tuple[int, ...]
    unique: bool
    name: str
    family: str

    @staticmethod
    def of(table: TableDef, columns: tuple[int, ...], unique: bool = False, name: str = "") -> Index:
        return Index(columns, unique, name, index_family_of(table, columns, unique))


class CommitObserver(Protocol):
    """What each commit to a table is reported to."""

    def written(self, changed: Callable[[], Changed]) -> None:
        """Record a commit.  changed: computes the rows that it removed and added."""


class AwaitedIndex(CommitObserver, Protocol):
    """An index that waits for Spark's files (`online/indexing.py`)."""

    index: Index


class RowCheck(CommitObserver, Protocol):
    """A check whether the rows fit a later definition (`online/fitting.py`).

    `over`: the check has ended.  `error`: why the rows do not fit.  `top`: the greatest value in the column that
    generates values from then on.  `unique`: the indexes that it fills.
    """

    over: bool
    error: SqlError | None
    top: int
    unique: list[Index]

    @property
    def reached(self) -> int:
        """The value after which AUTO_INCREMENT continues, whatever the rows have."""

    @property
    def passing(self) -> list[str]:
        """The temporary families."""

    @property
    def copied(self) -> StoredTable | None:
        """The table with the copied rows, if they are copied."""

    def same(self, wanted: TableDef) -> bool:
        """True if the rows were checked for this definition."""

    def restart(self) -> None:
        """Restart at the first row."""

    def abandon(self) -> None:
        """Abandon the check."""


class Counters(NamedTuple):
    """A table's counters, which are stored in the same commit as its rows."""

    rows: int = 0
    auto_increment: int = 0  # the greatest value generated or stored
    row_number: int = 0  # of tables without a primary key: the last one used

    def to_bytes(self) -> bytes:
        return _COUNTERS.pack(*self)

    @staticmethod
    def from_bytes(data: bytes) -> Counters:
        return Counters(*_COUNTERS.unpack(data))


_COUNTERS = struct.Struct("<3q")


class StoredTable:
    """A table's definition, its indexes and counters, and its encoding."""

    def __init__(self, definition: TableDef, symbols: Symbols, indexes: Sequence[Index] = ()):
        self._symbols = symbols
        self.fitting: RowCheck | None = None  # checks what is written
        self._define(definition)
        self.indexes: list[Index] = list(indexes)
        self.building: list[Index] = []  # maintained by writes, and not looked up yet (`indexing`)
        self.awaited: list[AwaitedIndex] = []  # builds that wait for Spark's files: `written` is called on them
        self.counters = Counters()

    def _define(self, definition: TableDef) -> None:
        self.definition = definition
        self.name, self.family = definition.name, family_of(definition)
        self.types = tuple(c.type for c in definition.columns)
        self.width = len(self.types)
        self.key = definition.primary_key
        self.key_types = tuple(self.types[c] for c in self.key)
        self.dropped = frozenset(at for at, c in enumerate(definition.columns) if c.dropped)
        self._rules: tuple[Rule, ...] | None = None if definition.enforced else ()
        self._converted = [(at, c.source) for at, c in enumerate(definition.columns) if c.source is not None]
        self._later = [at for at in definition.generated if definition.columns[at].added]

    def redefine(self, definition: TableDef) -> None:
        """Set another definition: columns, names, declared indexes, defaults, AUTO_INCREMENT.

        Stored rows stay as they are, or are in another family by now (`rekeying`).  An index that is no longer declared
        may be dropped once no view needs it.
        """
        self._define(definition)
        if self.fitting is not None:
            self.counters = self.counters._replace(auto_increment=max(self.fitting.top, self.fitting.reached))
        self.fitting = None
        self.indexes = [i if i.unique else replace(i, name=self.declared(i.columns)) for i in self.indexes]
        self.counters = self.counters._replace(
            auto_increment=max(self.counters.auto_increment, definition.first_id - 1))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The CHECKs that rows must fulfil."""
        if self._rules is None:
            self._rules = rules_of(self.definition)
        return self._rules

    def declared(self, columns: tuple[int, ...]) -> str:
        """The name under which an index of these columns is declared, or ""."""
        return next((i.name for i in self.definition.indexes if i.columns == columns and not i.unique), "")

    @property
    def maintained(self) -> list[Index]:
        """The indexes that every write changes."""
        return [*self.indexes, *self.building] if self.building else self.indexes

    @property
    def unfinished(self) -> list[Index]:
        """The indexes that are not looked up yet."""
        return [*self.building, *(b.index for b in self.awaited if b.index not in self.building)]

    def refuse_others(self, shard: Shard, rows: Codes) -> None:
        """Raise Misrouted for a row that the worker does not own."""
        shard.refuse_others(self.definition, rows, self._symbols)

    def abandon(self) -> None:
        """Forget the unfinished indexes."""
        self.building.clear()
        self.awaited.clear()

    @property
    def unique_indexes(self) -> list[Index]:
        return [i for i in self.indexes if i.unique]

    # ---------------------------------------------------------------- to bytes
    def keys(self, columns: Codes) -> list[bytes]:
        """Primary keys of rows; `bag_keys` makes those of a table without one."""
        return keys_of([columns[c] for c in self.key], self.key_types, self._symbols)

    def bag_keys(self, first: int, rows: int) -> list[bytes]:
        return keys_of([span(first, rows)], (BIGINT,), self._symbols)

    def rows(self, columns: Codes) -> list[bytes]:
        """Pack rows.  Raises SqlError 1048 for a NULL in a key or NOT NULL column, 1690 for an evaluation error.

        Hence no such row is ever stored, whatever computed it.
        """
        if columns.shape[1] and columns.item(columns.argmin()) < MIN_INT:
            self._refuse_absent(columns)
        return rows_of(columns, self.types, self._symbols)

    def _refuse_absent(self, columns: Codes) -> None:
        for at, column in enumerate(self.definition.columns):
            required = not column.dropped and (not column.nullable or at in self.key)
            if required and (columns[at] == NULL_CODE).any():
                raise null_not_allowed(column.name)
            if (columns[at] == ERROR_CODE).any():
                raise value_overflow(f"The value of column '{column.name}'")

    def columns_key(self, keys: Sequence[Codes], columns: Sequence[int]) -> list[bytes]:
        """Keys, or prefixes of keys, made of some columns' codes."""
        return keys_of(keys, [self.types[c] for c in columns], self._symbols)

    def index_keys(self, index: Index, columns: Codes, keys: list[bytes]) -> list[bytes]:
        """Keys of rows in an index; `keys` are their keys in the table."""
        prefixes = self.columns_key([columns[c] for c in index.columns], index.columns)
        if not index.unique:
            return list(map(add, prefixes, keys))
        nulls = self.nulls_in(index, columns)
        if nulls.any():
            for row in np.flatnonzero(nulls).tolist():
                prefixes[row] += keys[row]
        return prefixes

    @staticmethod
    def nulls_in(index: Index, columns: Codes) -> npt.NDArray[np.bool_]:
        """The mask of rows with a NULL in the index: UNIQUE does not hold for them."""
        found: npt.NDArray[np.bool_] = (columns[list(index.columns)] == NULL_CODE).any(axis=0)
        return found

    # ---------------------------------------------------------------- from bytes
    def codes(self, values: Sequence[bytes], texts: Collection[int] | None = None) -> Codes:
        """(width, rows) codes of packed rows; `texts` as in `unpack_rows`."""
        texts = None if self._converted or self._later else texts
        codes = unpack_rows(values, self.types, self._defaults, self._symbols, texts)
        if (self._converted or self._later) and len(values):
            widths = np.fromiter((v[0] | v[1] << 8 for v in values), np.int64, len(values))
            for at, source in self._converted:
                before = np.flatnonzero(widths <= at)
                if len(before):
                    codes[at, before] = recode_all(codes[source, before], self.types[source],
                                                   self.definition.columns[at], 1, self._symbols)
            for computed in computed_of(self.definition) if self._later else ():
                before = np.flatnonzero(widths <= computed.at)
                if len(before):
                    codes[computed.at, before] = computed.codes(codes[:, before], self._symbols)
        return codes

    def _defaults(self) -> Codes:
        """Values of columns that a row on disk does not have yet."""
        return codes_of(NULL_CODE if c.initial is None else encode(c.initial, c.type, self._symbols)
                        for c in self.definition.columns)

    def duplicate(self, index: Index | None, row: Codes) -> SqlError:
        """MySQL's error for a row whose key (or entry in a UNIQUE index) is taken."""
        columns, name = (self.key, "PRIMARY") if index is None else (index.columns, index.name)
        values = [decode(int(row[c]), self.types[c], self._symbols) for c in columns]
        shown = "-".join("NULL" if v is None else str(v) for v in values)
        return duplicate_entry(shown, f"{without_database(self.name)}.{name}")

    # ---------------------------------------------------------------- which index answers
    def access(self, columns: Sequence[int]) -> tuple[Index | None, tuple[int, ...]] | None:
        """The way to find rows by these columns: (index, or None for the key itself; columns in its order).

        The whole key is preferred, then a whole unique index, then a prefix of either; None if only a scan helps.
        """
        wanted = set(columns)
        order: list[tuple[Index | None, tuple[int, ...]]] = [
            (None, self.key), *((i, i.columns) for i in self.indexes if i.unique),
            *((i, i.columns) for i in self.indexes if not i.unique)]
        for index, of in order:
            if set(of) == wanted and of:
                return index, of
        for index, of in order:
            if set(of[: len(wanted)]) == wanted:
                return index, of[: len(wanted)]
        return None

    def serving(self, columns: Sequence[int]) -> tuple[Index | None, tuple[int, ...]] | None:
        """As `access`, or else the primary key if these columns include it; the other columns must be compared."""
        return self.access(columns) or ((None, self.key) if self.key and set(self.key) < set(columns) else None)

    def way(self, columns: Sequence[int]) -> tuple[Index | None, tuple[int, ...]] | None:
        """As `serving`, or else an index whose columns are among these.

        That serves until there is a better index, because many rows may have to be compared.
        """
        found = self.serving(columns)
        if found is None:
            within = [i for i in self.indexes if set(i.columns) < set(columns)]
            best = max(within, key=lambda i: (i.unique, len(i.columns)), default=None)
            found = None if best is None else (best, best.columns)
        return found
