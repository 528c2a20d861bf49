"""Reads the source's table definitions, and translates them to noria's.

    key            the primary key, else the first UNIQUE key of columns that cannot be NULL.  A table without one is
                   refused: a change would match any of several equal rows
    text           in a key, it compares by bytes, so that no collation here merges two rows of the source.  Elsewhere
                   it ignores case and accents, unless its collation ends in _bin
    generated      such a column has the values that the source computed
    omitted        AUTO_INCREMENT, defaults and other keys: no client writes the table

Keeps true: a column's type here holds every value of the source's type, or is refused; the error says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from noria.core.identifiers import quote_identifier
from noria.core.limits import MAX_DECIMAL_DIGITS
from noria.following.address import CannotFollow

_TYPE = re.compile(r"(\w+)(?:\((.*)\))?(?: +(unsigned))?(?: +zerofill)?(?: */\*.*\*/)?", re.DOTALL)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TIMES = ("datetime", "timestamp", "time")
CHARSETS = ("utf8mb4", "utf8mb3", "utf8", "ascii", "latin1")


@dataclass(frozen=True)
class SourceColumn:
    """A column as in information_schema.  type: COLUMN_TYPE, in lower case except the members of an ENUM or SET."""

    name: str
    type: str
    charset: str = ""
    collation: str = ""
    nullable: bool = True

    @property
    def kind(self) -> str:
        return self._parts[0]

    @property
    def arguments(self) -> str:
        return self._parts[1]

    @property
    def unsigned(self) -> bool:
        return self._parts[2]

    @property
    def _parts(self) -> tuple[str, str, bool]:
        found = _TYPE.fullmatch(self.type)
        if found is None:
            return self.type, "", False
        kind = found[1].lower()
        return {"integer": "int"}.get(kind, kind), found[2] or "", bool(found[3])

    @property
    def members(self) -> list[str]:
        """The members of an ENUM or a SET.

        >>> SourceColumn("c", "enum('a','it''s')").members
        ['a', "it's"]
        """
        return [m.replace("''", "'") for m in _MEMBER.findall(self.arguments)]


@dataclass(frozen=True)
class SourceTable:
    """A table of the source.  key: the names of the columns that identify a row."""

    name: str
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def key_places(self) -> tuple[int, ...]:
        return tuple(self.names.index(k) for k in self.key)

    def as_json(self) -> dict[str, Any]:
        return {"columns": [[c.name, c.type, c.charset, c.collation, c.nullable] for c in self.columns],
                "key": list(self.key)}

    @classmethod
    def from_json(cls, name: str, body: dict[str, Any]) -> SourceTable:
        return cls(name, tuple(SourceColumn(*c) for c in body["columns"]), tuple(body["key"]))


def sql_type(table: str, column: SourceColumn, is_key: bool = False) -> str:
    """Return noria's type for the column.  Raises Refused if there is none.

    >>> sql_type("t", SourceColumn("n", "int(10) unsigned"))
    'int unsigned'
    >>> sql_type("t", SourceColumn("s", "varchar(9)", "latin1", "latin1_swedish_ci"), is_key=True)
    'varchar(9) COLLATE utf8mb4_bin'
    """
    kind, arguments, unsigned = column._parts
    sign = " unsigned" if unsigned else ""
    if kind in _INTEGERS:
        return "tinyint(1)" if (kind, arguments, unsigned) == ("tinyint", "1", False) else kind + sign
    if kind == "decimal":
        digits = int((arguments or "10").partition(",")[0])
        if digits > MAX_DECIMAL_DIGITS:
            raise _no_type(table, column, f"a DECIMAL has at most {MAX_DECIMAL_DIGITS} digits here")
        return f"decimal({arguments or '10,0'}){sign}"
    if kind in ("float", "double"):
        if is_key:
            raise _no_type(table, column, "a key is of exact values")
        return kind + sign
    if kind in _TIMES:
        return f"{kind}({arguments})" if arguments else kind
    if kind in ("date", "year"):
        return kind
    if kind in _BYTES:
        return f"{kind}({arguments})" if kind.endswith("binary") else kind
    if kind in _TEXTS:
        _check_charset(table, column)
        exact = " COLLATE utf8mb4_bin" if is_key or column.collation.endswith("_bin") else ""
        return (f"{kind}({arguments})" if kind.endswith("char") else kind) + exact
    if kind in ("enum", "set"):
        _check_charset(table, column)
        listed = ",".join("'" + m.replace("\\", "\\\\").replace("'", "''") + "'" for m in column.members)
        return f"{kind}({listed})"
    if kind == "json" and not is_key:
        return kind
    raise _no_type(table, column, "there is no such type here")


def _check_charset(table: str, column: SourceColumn) -> None:
    if column.charset not in CHARSETS:
        raise _no_type(table, column, f"texts in {column.charset} are not read")


def _no_type(table: str, column: SourceColumn, why: str) -> CannotFollow:
    return CannotFollow(f"the column {table}.{column.name} is {column.type} in the source, and {why}: change its type "
                        f"there, or leave the table out by --tables")


def create(table: SourceTable) -> str:
    """Return the CREATE TABLE statement for noria."""
    columns = [f"{quote_identifier(c.name)} {sql_type(table.name, c, c.name in table.key)}"
               + (" NULL" if c.nullable else " NOT NULL") for c in table.columns]
    columns.append(f"PRIMARY KEY ({', '.join(map(quote_identifier, table.key))})")
    return f"CREATE TABLE IF NOT EXISTS {quote_identifier(table.name)} ({', '.join(columns)})"


def notes(table: SourceTable) -> Iterator[str]:
    """Yield a note for each column that behaves differently here."""
    for c in table.columns:
        if c.name in table.key and c.kind in _TEXTS and not c.collation.endswith("_bin"):
            yield f"{table.name}.{c.name} is compared by bytes here: it is part of the key, and {c.collation} there"


# ------------------------------------------------------------------ of the source
_COLUMNS = """SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE
              FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION"""
_KEYS = """SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS
           WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME,
           SEQ_IN_INDEX"""
_TABLES = """SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE'
             ORDER BY TABLE_NAME"""
_CASCADE = re.compile(r"FOREIGN KEY[^\n]*? ON (?:DELETE|UPDATE) (CASCADE|SET NULL|SET DEFAULT)")


def tables_of(cursor: Any, database: str) -> list[str]:
    cursor.execute(_TABLES, (database,))
    return [str(name) for (name,) in cursor.fetchall()]


def read(cursor: Any, database: str, wanted: Sequence[str]) -> dict[str, SourceTable]:
    """Return the present definitions of these tables, without missing ones.  Raises Refused for an unsupported one."""
    cursor.execute(_COLUMNS, (database,))
    columns: dict[str, list[SourceColumn]] = {}
    for table, name, kind, charset, collation, nullable in cursor.fetchall():
        columns.setdefault(str(table), []).append(
            SourceColumn(str(name), _text(kind), charset or "", collation or "", nullable == "YES"))
    cursor.execute(_KEYS, (database,))
    keys: dict[str, dict[str, list[tuple[str, bool]]]] = {}
    for table, index, column, part, nullable in cursor.fetchall():
        fits = part is None and nullable != "YES"
        keys.setdefault(str(table), {}).setdefault(str(index), []).append((str(column), fits))
    found = {}
    for name in wanted:
        if name in columns:
            _check_cascades(cursor, name)
            found[name] = SourceTable(name, tuple(columns[name]), _key(name, keys.get(name, {})))
            create(found[name])  # raises Refused for an unsupported type
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _key(table: str, indexes: dict[str, list[tuple[str, bool]]]) -> tuple[str, ...]:
    for columns in indexes.values():
        if all(fits for _, fits in columns):
            return tuple(c for c, _ in columns)
    raise CannotFollow(f"the table {table} of the source has no primary key of whole columns, and no UNIQUE key "
                       f"without "
                       f"NULL. So equal rows cannot be distinguished. Run ALTER TABLE {table} ADD PRIMARY KEY there, "
                       f"or "
                       "leave it out by --tables")


def _check_cascades(cursor: Any, table: str) -> None:
    """Raise Refused for a foreign key that changes rows: InnoDB does not log these changes.  It reads SHOW CREATE
    TABLE, because information_schema hides foreign keys from a user who may only read."""
    cursor.execute(f"SHOW CREATE TABLE {quote_identifier(table)}")
    found = _CASCADE.search(_text(cursor.fetchone()[1]))
    if found is not None:
        raise CannotFollow(f"a foreign key of {table} changes its rows by {found[1]}, which is in no binlog: make it "
                           f"RESTRICT in the source, or leave {table} out by --tables")
