"""SQL types, columns and tables as frozen values.

A type says how a value is coded into one int64 (`core/values.py`), compared and shown; it is the same on
disk, in state, in views and on the wire.  A `TableDef` refuses to exist when ill-formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

from noria.core import codec


class Kind(Enum):
    __hash__ = object.__hash__  # Enum's own is written in Python

    INT = "int"
    DOUBLE = "double"
    DECIMAL = "decimal"
    TEXT = "text"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    ENUM = "enum"
    SET = "set"


class Collation(Enum):
    """CI ignores case and accents (the default); BIN compares bytes.

    BYTES: no text, but bytes (BINARY, BLOB), represented as a string whose characters are the bytes (U+0000 to
    U+00FF).  So they have symbols and order like text.  `values.bytes_of` turns them into bytes for output.
    """

    __hash__ = object.__hash__

    CI = "utf8mb4_0900_ai_ci"
    BIN = "utf8mb4_bin"
    BYTES = "binary"


@dataclass(frozen=True)
class SqlType:
    """A SQL type.  Only the fields its kind uses differ from their defaults.

    bits: INT's width, 8 to 64; DOUBLE's 64, or 32 for FLOAT.  precision/scale: DECIMAL's digits (at most 18) and
    digits after the point; for DATETIME and TIME `scale` is the number of fractional second digits, 0 to 6.
    length: TEXT's most characters (bytes of BYTES), 0 for no limit but TEXT's own.  members: those of ENUM and SET.
    timestamp, boolean, declared ("year", "char", "json", "mediumtext", …): how the type was declared.
    """

    encoded_by_value: ClassVar[bool] = True  # each expression has one, and most are equal

    kind: Kind
    bits: int = 64
    unsigned: bool = False
    precision: int = 0
    scale: int = 0
    length: int = 0
    collation: Collation = Collation.CI
    timestamp: bool = False
    boolean: bool = False
    declared: str = ""
    members: tuple[str, ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self.kind, self.bits, self.unsigned, self.precision, self.scale, self.length, self.collation,
                self.timestamp, self.boolean, self.declared, self.members)

    def __hash__(self) -> int:
        """Kept: every expression has types, and plans are looked up by their expressions."""
        return self._hash

    def __reduce__(self) -> tuple[type[SqlType], tuple[Any, ...]]:
        """Without the hash, which holds for one process only."""
        return SqlType, self._parts

    @property
    def is_text(self) -> bool:
        return self.kind is Kind.TEXT

    @property
    def folds(self) -> bool:
        """Are two different codes of this type ever equal in SQL?"""
        return self.kind is Kind.TEXT and self.collation is Collation.CI

    @property
    def is_number(self) -> bool:
        return self.kind in (Kind.INT, Kind.DOUBLE, Kind.DECIMAL)

    @property
    def is_bytes(self) -> bool:
        return self.collation is Collation.BYTES

    @property
    def is_json(self) -> bool:
        return self.declared == "json"

    @property
    def is_listed(self) -> bool:
        """Is a value a number here and a text to people: a member's place (ENUM), a mask of members (SET)?"""
        return self.kind in (Kind.ENUM, Kind.SET)

    def sql(self) -> str:
        """The type as CREATE TABLE would say it."""
        if self.members:
            listed = ",".join("'" + m.replace("\\", "\\\\").replace("'", "''") + "'" for m in self.members)
            return f"{self.kind.value}({listed})"
        if self.kind is Kind.INT:
            if self.boolean:
                return "tinyint(1)"
            if self.declared == "year":
                return "year"
            name = {8: "tinyint", 16: "smallint", 24: "mediumint", 32: "int", 64: "bigint"}[self.bits]
            return name + (" unsigned" if self.unsigned else "")
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})" + (" unsigned" if self.unsigned else "")
        if self.kind in (Kind.DATETIME, Kind.TIME):
            name = "timestamp" if self.timestamp else self.kind.value
            return name + (f"({self.scale})" if self.scale else "")
        if self.kind is Kind.TEXT:
            return self._text_sql()
        if self.kind is Kind.DOUBLE:
            return ("float" if self.bits == 32 else "double") + (" unsigned" if self.unsigned else "")
        return str(self.kind.value)

    def _text_sql(self) -> str:
        if self.is_json:
            return "json"
        if self.is_bytes:
            return f"{self.declared or 'varbinary'}({self.length})" if self.length else self.declared or "blob"
        name = f"{self.declared or 'varchar'}({self.length})" if self.length else self.declared or "text"
        return name + (" COLLATE utf8mb4_bin" if self.collation is Collation.BIN else "")

    def __str__(self) -> str:
        return self.sql()


BIGINT = SqlType(Kind.INT)
INT = SqlType(Kind.INT, bits=32)
BOOL = SqlType(Kind.INT, bits=8, boolean=True)
YEAR = SqlType(Kind.INT, bits=16, unsigned=True, declared="year")
DOUBLE = SqlType(Kind.DOUBLE)
TEXT = SqlType(Kind.TEXT)
TEXT_BIN = SqlType(Kind.TEXT, collation=Collation.BIN)
BYTES = SqlType(Kind.TEXT, collation=Collation.BYTES)
JSON = SqlType(Kind.TEXT, collation=Collation.BIN, declared="json")
DATE = SqlType(Kind.DATE)
DATETIME = SqlType(Kind.DATETIME)
TIME = SqlType(Kind.TIME)


def decimal(precision: int, scale: int) -> SqlType:
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


@dataclass(frozen=True)
class Field:
    """One output column of a relation."""

    name: str
    type: SqlType
    nullable: bool = True


COPY = "0"  # no number begins so: what is there, too, after its worker ended
BESIDE = "\0"  # in the name of what is made beside another, before a number: no text can name it
NOW = -1  # the number of a change that has none yet


@dataclass(frozen=True)
class Column:
    """One column of a base table.  `default` is an encoded-free Python value (see `values.encode`)."""

    name: str
    type: SqlType
    nullable: bool = True
    has_default: bool = False
    default: object = None
    auto_increment: bool = False
    default_now: bool = False  # DEFAULT CURRENT_TIMESTAMP, filled in by whoever accepts the statement
    update_now: bool = False  # ON UPDATE CURRENT_TIMESTAMP: likewise, where the row changes otherwise
    initial: object = None  # what rows have that were there before the column was
    added: int = 0  # by the how manieth change of columns since the beginning; 0: with the table
    dropped: int = 0  # likewise; 0: it is there.  Rows keep its place, new ones have NULL in it
    source: int | None = None  # the column, dropped since, whose value rows that were there before have, converted

    @property
    def field(self) -> Field:
        return Field(self.name, self.type, self.nullable)


@dataclass(frozen=True)
class IndexDef:
    """A declared secondary index; `unique` is enforced."""

    name: str
    columns: tuple[int, ...]
    unique: bool = False


@dataclass(frozen=True)
class Past:
    """How a table and its columns were called and ordered before a change: (position, name) as they were shown."""

    before: int
    name: str
    shown: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class TableDef:
    """A base table.  Column positions are identities: a dropped column keeps its place, a new one comes last,
    wherever it is shown.  Names of dropped columns are none that a column can have."""

    encoded_once: ClassVar[bool] = True  # every plan has its tables whole

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()
    indexes: tuple[IndexDef, ...] = ()
    table_id: int = 0  # given by the catalog, never reused
    first_id: int = field(default=1, compare=False)  # AUTO_INCREMENT = n, for whoever makes the table
    order: tuple[int, ...] = ()  # positions as they are shown; empty: as they stand
    past: tuple[Past, ...] = ()  # the oldest first; as far back as a view of then is there
    made: int = 0  # after how many changes of columns
    keyed: int = 0  # how often its rows have got another primary key
    scattered: bool = False  # do other columns than these tell the worker of a row?

    def __post_init__(self) -> None:
        names = [c.name.lower() for c in self.columns]
        if all(c.dropped for c in self.columns):
            raise ValueError(f"table {self.name} has no columns")
        if len(set(names)) != len(names):
            raise ValueError(f"table {self.name} names a column twice")
        for cols in (self.primary_key, *(i.columns for i in self.indexes)):
            if any(not 0 <= c < len(names) for c in cols) or len(set(cols)) != len(cols):
                raise ValueError(f"table {self.name} has an ill-formed key {cols}")
        if self.order and sorted(self.order) != [i for i, c in enumerate(self.columns) if not c.dropped]:
            raise ValueError(f"table {self.name} has an ill-formed order {self.order}")

    @property
    def is_beside(self) -> bool:
        """Is it made beside the table whose place it will take?  No text can name it."""
        return BESIDE in self.name

    @property
    def is_passing(self) -> bool:
        """Is it such a one, in no catalog: gone when its worker ends?"""
        return self.is_beside and BESIDE + COPY not in self.name

    def __reduce__(self) -> tuple[Callable[[bytes], TableDef], tuple[bytes]]:
        """In a closure of Spark's: the same bytes as in a message."""
        return _unpacked, (codec.packed(self),)

    @cached_property
    def shown(self) -> tuple[int, ...]:
        """Positions of the columns that are there, in their order."""
        return self.order or tuple(i for i, c in enumerate(self.columns) if not c.dropped)

    @cached_property
    def sharded_by(self) -> tuple[int, ...] | None:
        """The columns that determine a row's worker.

        They are those that the primary key and all UNIQUE indexes have in common, because one worker must have all
        rows of a key value.  If there are none in common, those of the primary key (`spread_unique`), and without
        one worker 0 has all rows.  None: the table has no key, and any worker may have a row.
        """
        if self.scattered:
            return None
        keys = [k for k in (self.primary_key, *(i.columns for i in self.indexes if i.unique)) if k]
        return tuple(c for c in keys[0] if all(c in k for k in keys)) or self.primary_key if keys else None

    @cached_property
    def spread_unique(self) -> tuple[IndexDef, ...]:
        """The UNIQUE indexes of which several workers may have a value."""
        by = set(self.sharded_by or ())
        return tuple(i for i in self.indexes if i.unique and not by <= set(i.columns))

    @cached_property
    def altered(self) -> bool:
        """Has it other columns than it was made with?"""
        return any(c.added or c.dropped for c in self.columns)

    @property
    def shape(self) -> tuple[tuple[int, str], ...]:
        """(position, name) of the columns as they are shown."""
        return tuple((i, self.columns[i].name) for i in self.shown)

    def position(self, name: str) -> int:
        """The column's position; KeyError when there is none.  Names ignore case, as MySQL's do."""
        for i, c in enumerate(self.columns):
            if c.name.lower() == name.lower() and not c.dropped:
                return i
        raise KeyError(name)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Of the rows: with the columns that were dropped."""
        return tuple(c.field for c in self.columns)

    def as_of(self, change: int) -> TableDef:
        """The table with just the columns that it had after so many changes, as they were called and ordered then."""
        past = self.then(change)
        width = sum(c.added <= change for c in self.columns)
        if past is None and width == len(self.columns):
            return self
        shown = tuple(s for s in (self.shape if past is None else past.shown) if s[0] < width)
        names = dict(shown)
        columns = tuple(replace(c, name=names.get(i, gone(i)), dropped=0 if i in names else 1)
                        for i, c in enumerate(self.columns[:width]))
        return replace(self, columns=columns, primary_key=(), indexes=(), order=tuple(names), past=()).keyed_as(self)

    def keyed_as(self, table: TableDef) -> TableDef:
        """With the keys and indexes of another table, as far as they are of its columns."""
        width = len(self.columns)
        key = table.primary_key if all(c < width for c in table.primary_key) else ()
        indexes = tuple(i for i in table.indexes if max(i.columns) < width)
        made = replace(self, primary_key=key, indexes=indexes, keyed=table.keyed, scattered=False)
        return made if made.sharded_by == table.sharded_by else replace(made, scattered=True)

    def then(self, change: int) -> Past | None:
        """How it was called after so many changes; None: as it is now."""
        return next((p for p in self.past if p.before > change), None)

    @cached_property
    def auto_increment(self) -> int | None:
        return next((i for i, c in enumerate(self.columns) if c.auto_increment), None)

    def numbered(self, was: TableDef) -> int | None:
        """The column that gives a number to each row that was there before the table had it."""
        column = self.auto_increment
        new = column is not None and column >= len(was.columns) and self.columns[column].source is None
        return column if new else None


def gone(position: int) -> str:
    """The name of a column that was dropped: no other can end with a space."""
    return f"dropped {position} "


def _unpacked(packed: bytes) -> TableDef:
    """The same object for the same bytes: then plans over a table are told equal without a look at its columns."""
    table: TableDef = codec.unpacked(TableDef, packed)
    return table
