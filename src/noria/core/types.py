"""SQL types, columns and tables as frozen values.

A type says how a value is coded into one int64 (`core/values.py`), compared and printed.  Disk, states, views and
messages use the same types.  Keeps true: a `TableDef` is well-formed, or its construction raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """CI, the default, ignores case and accents.  BIN compares bytes.

    BYTES is for bytes (BINARY, BLOB), represented as a string whose characters U+0000 to U+00FF are the bytes.  So they
    have symbols and an order like text.  `values.bytes_of` converts them for output.
    """

    __hash__ = object.__hash__

    CI = "utf8mb4_0900_ai_ci"
    BIN = "utf8mb4_bin"
    BYTES = "binary"


@dataclass(frozen=True)
class SqlType:
    """A SQL type.  Only the fields that its kind uses differ from their defaults.

    `bits`: the width of INT, 8 to 64; for DOUBLE 64, or 32 for FLOAT. `precision`: the digits of DECIMAL (18 at most
    of a value), without those of `length`, and of DOUBLE(M,D), the bits of BIT. `scale`: the digits after the point;
    for DATETIME and TIME, of fractional seconds, 0 to 6. `length`: the most characters of TEXT, or bytes of BYTES; 0:
    TEXT's own limit. For DECIMAL: the declared digits behind those of `scale`, zeros in every value. `members`: those
    of ENUM and SET. `timestamp`, `boolean`, `declared` ("year", "bit", "char", "json", …): how it was declared.
    """

    encoded_by_value: ClassVar[bool] = True  # each expression has a type, and most types are equal

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
        """Return the cached hash: each expression has types, and plans are looked up by their expressions."""
        return self._hash

    def __reduce__(self) -> tuple[type[SqlType], tuple[Any, ...]]:
        """Pickle the type without its cached hash, which is valid in one process only."""
        return SqlType, self._parts

    @property
    def is_text(self) -> bool:
        return self.kind is Kind.TEXT

    @property
    def folds(self) -> bool:
        """True if different codes of this type can be equal in SQL: for CI text."""
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
    def is_bit(self) -> bool:
        """True for BIT: an unsigned number, which clients see as its bytes, the greatest first."""
        return self.declared == "bit"

    @property
    def is_listed(self) -> bool:
        """True for ENUM and SET: the code is a member's position or a mask of members, and clients see text."""
        return self.kind in (Kind.ENUM, Kind.SET)

    def sql(self) -> str:
        """Return the type as CREATE TABLE spells it."""
        if self.members:
            listed = ",".join("'" + m.replace("\\", "\\\\").replace("'", "''") + "'" for m in self.members)
            return f"{self.kind.value}({listed})"
        if self.kind is Kind.INT:
            if self.boolean:
                return "tinyint(1)"
            if self.declared:  # YEAR or BIT
                return self.declared + (f"({self.precision})" if self.precision else "")
            name = {8: "tinyint", 16: "smallint", 24: "mediumint", 32: "int", 64: "bigint"}[self.bits]
            return name + (" unsigned" if self.unsigned else "")
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision + self.length},{self.scale + self.length})" + " unsigned" * self.unsigned
        if self.kind in (Kind.DATETIME, Kind.TIME):
            name = "timestamp" if self.timestamp else self.kind.value
            return name + (f"({self.scale})" if self.scale else "")
        if self.kind is Kind.TEXT:
            return self._text_sql()
        if self.kind is Kind.DOUBLE:
            digits = f"({self.precision},{self.scale})" if self.precision else ""
            return ("float" if self.bits == 32 else "double") + digits + (" unsigned" if self.unsigned else "")
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


MOMENTS = (Kind.DATE, Kind.DATETIME)
BIGINT, UBIGINT, INT = SqlType(Kind.INT), SqlType(Kind.INT, unsigned=True), SqlType(Kind.INT, bits=32)
BOOL = SqlType(Kind.INT, bits=8, boolean=True)
YEAR = SqlType(Kind.INT, bits=16, unsigned=True, declared="year")
DOUBLE, TEXT = SqlType(Kind.DOUBLE), SqlType(Kind.TEXT)
TEXT_BIN = SqlType(Kind.TEXT, collation=Collation.BIN)
BYTES = SqlType(Kind.TEXT, collation=Collation.BYTES)
JSON = SqlType(Kind.TEXT, collation=Collation.BIN, declared="json")
DATE, DATETIME, TIME = SqlType(Kind.DATE), SqlType(Kind.DATETIME), SqlType(Kind.TIME)


def decimal(precision: int, scale: int) -> SqlType:
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


@dataclass(frozen=True)
class Origin:
    """Where a column of a result comes from. `alias`: the relation's name in the statement. `table`, `column`: the
    names of the table or view and of its column. `key`: "primary", "unique" (alone), "multiple" (first of an index) or
    "". `within_key`: any key has the column. `required`: an INSERT must set it.
    """

    database: str
    alias: str
    table: str
    column: str
    key: str = ""
    within_key: bool = False
    auto_increment: bool = False
    required: bool = False


@dataclass(frozen=True)
class Field:
    """One output column of a relation. `origin`: only of a client's result."""

    name: str
    type: SqlType
    nullable: bool = True
    origin: Origin | None = None


Origins = tuple[Origin | None, ...]  # of the columns of a result; or of the first ones


def with_origins(fields: Sequence[Field], origins: Origins) -> tuple[Field, ...]:
    """The fields of a result with their origins."""
    if not any(origins):
        return tuple(fields)
    return (*(replace(f, origin=o) for f, o in zip(fields, origins, strict=False)), *fields[len(origins):])


COPY = "0"  # after BESIDE in the name of a table that survives a restart of its worker: no number begins with 0
BESIDE = "\0"  # before a number in the name of a table or view made beside another one: no SQL text can contain it
NOW = -1  # stands for the number of a change that has none yet


@dataclass(frozen=True)
class Column:
    """One column of a base table.  default, initial: Python values, not codes (see `values.encode`)."""

    name: str
    type: SqlType
    nullable: bool = True
    has_default: bool = False
    default: object = None
    auto_increment: bool = False
    default_now: bool = False  # DEFAULT CURRENT_TIMESTAMP: the front end adds the time to the statement
    update_now: bool = False  # ON UPDATE CURRENT_TIMESTAMP: likewise, if the row changes otherwise
    initial: object = None  # the value of rows that are older than the column
    added: int = 0  # the number of the change that added it; 0: it is as old as the table
    dropped: int = 0  # the number of the change that dropped it; 0: it exists.  Rows keep its position; new ones: NULL
    source: int | None = None  # a column, dropped since, whose converted value is that of older rows
    # How `expression` makes its value: "virtual", "stored" for generated columns, "prefix", "key" for hidden ones
    # (`sql/statements/keys.py`); "constant", "time", "default" for DEFAULT (…) (`defaults.py` there); "" for none.
    computed: str = ""
    expression: str = ""  # over the table's columns, as SQL (`table_expressions.py` in sql)
    comment: str = ""

    @property
    def generated(self) -> bool:
        return self.hidden or self.computed in ("virtual", "stored")

    @property
    def hidden(self) -> bool:
        """Whether it is a generated column of a key that clients do not see."""
        return self.computed in ("prefix", "key")

    @property
    def prefix_of(self) -> tuple[int, int]:
        """Of a hidden column: the length of its prefix, and the position of the column that the prefix is of."""
        _, length, _, base = self.name.split()
        return int(length), int(base)

    @property
    def takes_time(self) -> bool:
        """True if the front end adds a default that depends on the time."""
        return self.default_now or self.computed == "time"

    @property
    def field(self) -> Field:
        return Field(self.name, self.type, self.nullable)


@dataclass(frozen=True)
class IndexDef:
    """A declared secondary index; `unique` is enforced."""

    name: str
    columns: tuple[int, ...]
    unique: bool = False
    prefix: tuple[int, ...] = ()  # for each column the length of the prefix that was declared, or 0; empty: none


@dataclass(frozen=True)
class Check:
    """A CHECK constraint.  text: its condition over the table's columns, as SQL (`table_expressions.py` in sql)."""

    name: str
    text: str
    enforced: bool = True


class Action(Enum):
    """What a write of a parent's row does to the rows that refer to it.  NO ACTION and RESTRICT do the same."""

    __hash__ = object.__hash__

    NO_ACTION = "NO ACTION"
    RESTRICT = "RESTRICT"
    CASCADE = "CASCADE"
    SET_NULL = "SET NULL"

    @property
    def refuses(self) -> bool:
        """True if the write of the parent's row is an error while other rows refer to it."""
        return self in (Action.NO_ACTION, Action.RESTRICT)


@dataclass(frozen=True)
class ForeignKey:
    """A FOREIGN KEY of the table that has it, the child.

    columns: positions in the child.  parent: the catalog's name of the table that it refers to; it may be the child
    itself.  While a dump is loaded, there may be no such table.  parent_columns: the names of its columns, in the order
    of `columns`.  They are names because the parent may be created later, or dropped and created again.  If the parent
    or a column of it is renamed, so is it in the child's definition (`control/ddl/foreign_keys.py`).
    """

    name: str
    columns: tuple[int, ...]
    parent: str
    parent_columns: tuple[str, ...]
    on_delete: Action = Action.NO_ACTION
    on_update: Action = Action.NO_ACTION

    def refers_to(self, table: str) -> bool:
        return self.parent.lower() == table.lower()

    def positions_in(self, parent: TableDef) -> tuple[int, ...]:
        """The positions of the parent's columns.  Raises KeyError if it lacks one."""
        return tuple(parent.position(c) for c in self.parent_columns)


@dataclass(frozen=True)
class Past:
    """The name of a table before a change with this number, and its columns then: (position, name) in their order."""

    before: int
    name: str
    shown: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class TableDef:
    """A base table.  Column positions are identities: a dropped column keeps its position, and a new one gets the last,
    whatever the order of columns for clients.  No other column can have the name of a dropped one."""
    encoded_once: ClassVar[bool] = True  # plans contain their tables' definitions

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()
    indexes: tuple[IndexDef, ...] = ()
    table_id: int = 0  # assigned by the catalog, never reused
    first_id: int = field(default=1, compare=False)  # AUTO_INCREMENT = n, used when the table is created
    order: tuple[int, ...] = ()  # positions in the order for clients; empty: ascending
    past: tuple[Past, ...] = ()  # the oldest first, as far back as an existing view needs it
    made: int = 0  # the number of changes of columns before the table was created
    keyed: int = 0  # how often its primary key was changed
    scattered: bool = False  # True if columns that are not among these determine a row's worker
    checks: tuple[Check, ...] = ()  # in the order of their names
    foreign_keys: tuple[ForeignKey, ...] = ()  # in the order of their names
    fulltext: tuple[IndexDef, ...] = ()  # the FULLTEXT keys, which only say which columns MATCH may search
    comment: str = ""

    def __post_init__(self) -> None:
        names = [c.name.lower() for c in self.columns]
        if all(c.dropped for c in self.columns):
            raise ValueError(f"table {self.name} has no columns")
        if len(set(names)) != len(names):
            raise ValueError(f"table {self.name} names a column twice")
        for cols in (self.primary_key, *(i.columns for i in (*self.indexes, *self.fulltext)),
                     *(k.columns for k in self.foreign_keys)):
            if any(not 0 <= c < len(names) for c in cols) or len(set(cols)) != len(cols):
                raise ValueError(f"table {self.name} has an ill-formed key {cols}")
        if self.order and sorted(self.order) != _visible(self.columns):
            raise ValueError(f"table {self.name} has an ill-formed order {self.order}")

    @property
    def is_beside(self) -> bool:
        """True if the table is made beside the one that it will replace.  No SQL text can name it."""
        return BESIDE in self.name

    @property
    def is_passing(self) -> bool:
        """True if the table is made beside another, is in no catalog, and is lost when its worker ends."""
        return self.is_beside and BESIDE + COPY not in self.name

    def __reduce__(self) -> tuple[Callable[[bytes], TableDef], tuple[bytes]]:
        """Pickle the table for a closure of Spark: as the bytes that a message has."""
        return _unpacked, (codec.packed(self),)

    @cached_property
    def shown(self) -> tuple[int, ...]:
        """The positions of the existing columns, in the order for clients."""
        return self.order or tuple(_visible(self.columns))

    @cached_property
    def sharded_by(self) -> tuple[int, ...] | None:
        """The columns that determine a row's worker.

        They are the columns that the primary key and all UNIQUE indexes share, because one worker must have all rows of
        a key value.  If they share none, the primary key determines the worker (`spread_unique`).  If there is no
        primary key, either, the tuple is empty and worker 0 has all rows.  None: there are no keys or the table is
        scattered, and any worker may have a row.
        """
        if self.scattered:
            return None
        keys = [k for k in (self.primary_key, *(i.columns for i in self.indexes if i.unique)) if k]
        return tuple(c for c in keys[0] if all(c in k for k in keys)) or self.primary_key if keys else None

    @cached_property
    def spread_unique(self) -> tuple[IndexDef, ...]:
        """The UNIQUE indexes whose values several workers may have."""
        by = set(self.sharded_by or ())
        return tuple(i for i in self.indexes if i.unique and not by <= set(i.columns))

    @cached_property
    def altered(self) -> bool:
        """True if columns were added or dropped since the table was created."""
        return any(c.added or c.dropped for c in self.columns)

    @cached_property
    def generated(self) -> tuple[int, ...]:
        """The positions of the generated columns, each behind those that it reads; hidden ones come last."""
        hidden = [i for i, c in enumerate(self.columns) if c.hidden and not c.dropped]
        return (*(i for i in self.shown if self.columns[i].generated), *hidden)

    def parts(self, index: IndexDef) -> list[tuple[int, int]]:
        """The declared parts of an index: the position of each column, and the length of its prefix, or 0."""
        columns = [self.columns[c].prefix_of[1] if self.columns[c].computed == "prefix" else c for c in index.columns]
        return list(zip(columns, index.prefix or (0,) * len(columns), strict=True))

    @cached_property
    def defaulted(self) -> tuple[int, ...]:
        """The positions of the columns whose default reads other columns, each behind those that it reads."""
        return tuple(i for i in self.shown if self.columns[i].computed == "default")

    @cached_property
    def writable(self) -> tuple[int, ...]:
        """The existing columns that take values, in the order for clients."""
        return tuple(i for i in self.shown if not self.columns[i].generated) if self.generated else self.shown

    @cached_property
    def enforced(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if c.enforced)

    @property
    def shape(self) -> tuple[tuple[int, str], ...]:
        """(position, name) of the existing columns, in the order for clients."""
        return tuple((i, self.columns[i].name) for i in self.shown)

    def position(self, name: str) -> int:
        """Return the position of a column.  Its case does not matter.  Raises KeyError if there is none."""
        for i, c in enumerate(self.columns):
            if c.name.lower() == name.lower() and not c.dropped:
                return i
        raise KeyError(name)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a stored row, including dropped columns."""
        return tuple(c.field for c in self.columns)

    def as_of(self, change: int) -> TableDef:
        """Return the table with the columns, names and order that it had after a number of changes."""
        past = self.then(change)
        width = sum(c.added <= change for c in self.columns)
        if past is None and width == len(self.columns):
            return self
        names = dict(s for s in (self.shape if past is None else past.shown) if s[0] < width)
        columns = tuple(replace(c, name=names.get(i, gone(i)), dropped=0 if i in names else 1)
                        for i, c in enumerate(self.columns[:width]))
        return replace(self, columns=columns, primary_key=(), indexes=(), order=tuple(names), past=(),
                       checks=(), foreign_keys=(), fulltext=()).keyed_as(self)

    def keyed_as(self, table: TableDef) -> TableDef:
        """Return this table with the keys and indexes of another one that use only columns of this one."""
        width = len(self.columns)
        key = table.primary_key if all(c < width for c in table.primary_key) else ()
        indexes, words = (tuple(i for i in of if max(i.columns) < width) for of in (table.indexes, table.fulltext))
        made = replace(self, primary_key=key, indexes=indexes, fulltext=words, keyed=table.keyed, scattered=False)
        return made if made.sharded_by == table.sharded_by else replace(made, scattered=True)

    def then(self, change: int) -> Past | None:
        """Return the names that the table had after a number of changes, or None if they are the current ones."""
        return next((p for p in self.past if p.before > change), None)

    @cached_property
    def changed(self) -> int:  # the number of the last recorded change of its columns or its name
        return max([self.made, *(p.before for p in self.past), *(max(c.added, c.dropped) for c in self.columns)])

    @cached_property
    def auto_increment(self) -> int | None:
        return next((i for i, c in enumerate(self.columns) if c.auto_increment), None)

    def numbered(self, was: TableDef) -> int | None:
        """Return the new AUTO_INCREMENT column, for which existing rows need numbers, or None.  was: the old table."""
        column = self.auto_increment
        new = column is not None and column >= len(was.columns) and self.columns[column].source is None
        return column if new else None


def _visible(columns: tuple[Column, ...]) -> list[int]:
    return [i for i, c in enumerate(columns) if not c.dropped and not c.hidden]


def gone(position: int) -> str:
    """Return the name of a dropped column.  No other column's name can end with a space."""
    return f"dropped {position} "


def _unpacked(packed: bytes) -> TableDef:
    """Decode a table.  Equal bytes return the same object, so comparing plans over it need not compare its columns."""
    table: TableDef = codec.unpacked(TableDef, packed)
    return table
