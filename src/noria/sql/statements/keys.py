"""Keys and their parts: `KEY (title(10))`, `UNIQUE KEY (title(10), author)`, `KEY ((lower(title)))`, `FULLTEXT KEY`.

A plain key on a prefix is an index over the whole column, and only shown with the prefix.  A UNIQUE one has a hidden
column in the place of the prefix, which is generated as `left(title, 10)`.  A primary key on prefixes is one of the
whole columns, with a UNIQUE key on the prefixes, which has the name PRIMARY.

A part that is an expression has a hidden column, too, which is generated as the expression.

A FULLTEXT key is only a part of the definition: MATCH … AGAINST reads the columns.

Keeps true: each hidden column is part of an index.  That of a prefix is of the column that the prefix is of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from noria.core.errors import SqlError, unknown_column
from noria.core.errors.codes import (
    BAD_FT_COLUMN,
    CANT_DROP_FIELD_OR_KEY,
    DUP_FIELDNAME,
    FUNCTIONAL_INDEX_FUNCTION_IS_NOT_ALLOWED,
    FUNCTIONAL_INDEX_ON_FIELD,
    FUNCTIONAL_INDEX_ON_JSON,
    FUNCTIONAL_INDEX_PRIMARY_KEY,
    KEY_COLUMN_DOES_NOT_EXIST,
    WRONG_SUB_KEY,
)
from noria.core.identifiers import quote_identifier, refuse_repeated_columns
from noria.core.types import Column, IndexDef, TableDef
from noria.sql.expressions.table_expressions import Place, of_text, refuse_unfit, resolved, text_of
from noria.sql.text.refusals import refuse


class KeyPart(str):
    """The name of a column in a key.  prefix: the number of its first characters, or bytes; 0 for all.

    expression: of a part that is none.  Its text is then the name that a key without one gets."""

    prefix: int = 0
    expression: exp.Expr | None = None


class FulltextColumns(list[KeyPart]):
    """The columns of a FULLTEXT key."""


PRIMARY = "PRIMARY"
IN_A_KEY = Place("Expression of functional index", *(FUNCTIONAL_INDEX_FUNCTION_IS_NOT_ALLOWED,) * 4, "a ")
Drop = Callable[[TableDef, int], TableDef]  # drops a column, also from indexes


def key_column(node: exp.Expr) -> KeyPart:
    """The column of a key."""
    if isinstance(node, exp.Ordered):
        node = node.this
    length = 0
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal):
        node = exp.ColumnPrefix(this=exp.to_identifier(node.name), expression=node.expressions[0])  # in CREATE INDEX
    if isinstance(node, exp.ColumnPrefix):
        number, node = node.expression.name, node.this
        length = int(number) if number.isdigit() else 0
        if not length:
            raise _wrong()
    if isinstance(node, exp.Paren):
        return _expression_part(node.this)
    if not isinstance(node, (exp.Column, exp.Identifier)):
        raise refuse("a key on an expression without brackets", node, f"write ({node.sql(dialect='mysql')})")
    part = KeyPart(node.name)
    part.prefix = length
    return part


def _expression_part(node: exp.Expr) -> KeyPart:
    if isinstance(node.unnest(), exp.Column):
        raise SqlError(*FUNCTIONAL_INDEX_ON_FIELD,
                       "Functional index on a column is not supported. Consider using a regular index instead.")
    part = KeyPart("functional_index")
    part.expression = node
    return part


def _wrong() -> SqlError:
    return SqlError(*WRONG_SUB_KEY, "Incorrect prefix key; the used key part isn't a string, the used length is longer "
                                    "than the key part, or the storage engine doesn't support unique prefix keys")


def key_positions(columns: Sequence[Column], names: Sequence[str]) -> tuple[int, ...]:
    """The positions of a key's columns.  Raises SqlError for unknown and repeated columns."""
    places = {c.name.lower(): i for i, c in enumerate(columns)}
    if any(isinstance(n, KeyPart) and n.expression is not None for n in names):
        raise SqlError(*FUNCTIONAL_INDEX_PRIMARY_KEY, "The primary key cannot be a functional index")
    for n in names:
        if n.lower() not in places:
            raise SqlError(*KEY_COLUMN_DOES_NOT_EXIST, f"Key column '{n}' doesn't exist in table")
    found = tuple(places[n.lower()] for n in names)
    refuse_repeated_columns(names)
    return found


def shown_position(table: TableDef, name: str) -> int | None:
    """The position of a column that clients see, or None.  Its case does not matter."""
    return next((at for at in table.shown if table.columns[at].name.lower() == name.lower()), None)


def column_position(table: TableDef, name: str, clause: str = "field list") -> int:
    """The position of a column that a clause names.  Raises SqlError 1054 if there is none."""
    try:
        return table.position(name)
    except KeyError:
        raise unknown_column(name, clause) from None


# ------------------------------------------------------------------ a definition with them
def with_indexes(table: TableDef, declared: Sequence[tuple[str, Sequence[str], bool]]) -> TableDef:
    """The table with further indexes: (name, columns, unique).  A name that is already taken gets a number."""
    for name, parts, unique in declared:
        if isinstance(parts, FulltextColumns):
            table = _with_fulltext(table, name, key_positions(table.columns, parts))
            continue
        table, parts = _named(table, parts)
        places = key_positions(table.columns, parts)
        prefix = tuple(_prefix(table.columns[at], part) for at, part in zip(places, parts, strict=True))
        if unique:
            for n, length in enumerate(prefix):
                if length:
                    table, hidden = _hidden(table, places[n], length)
                    places = (*places[:n], hidden, *places[n + 1:])
        index = IndexDef(_free(table, name), places, unique, prefix if any(prefix) else ())
        table = replace(table, indexes=(*table.indexes, index))
    return table


def _named(table: TableDef, parts: Sequence[str]) -> tuple[TableDef, Sequence[str]]:
    """The table with hidden columns for the parts that are expressions, and the parts with the names of these."""
    named = []
    for part in parts:
        if isinstance(part, KeyPart) and part.expression is not None:
            table, at = _of_expression(table, part.expression)
            if table.columns[at].name in named:
                raise SqlError(*DUP_FIELDNAME, f"Duplicate column name '{table.columns[at].expression}'")
            part = table.columns[at].name
        named.append(part)
    return table, named


def _of_expression(table: TableDef, node: exp.Expr) -> tuple[TableDef, int]:
    """The table with the hidden column of an expression, and its position."""
    refuse_unfit(node, IN_A_KEY)
    try:
        made, text = resolved(table, node), text_of(table, node)
    except KeyError as e:
        raise unknown_column(str(e.args[0]), "functional index") from None
    if made.type.is_json:
        raise SqlError(*FUNCTIONAL_INDEX_ON_JSON,
                       "Cannot create a functional index on a function that returns a JSON or GEOMETRY value.")
    known = next((at for at, c in enumerate(table.columns) if c.computed == "key" and not c.dropped
                  and c.expression == text), None)
    if known is not None:
        return table, known
    column = Column(f"key {len(table.columns)} ", made.type, made.nullable, computed="key", expression=text)
    return replace(table, columns=(*table.columns, column)), len(table.columns)


def prefix_name(position: int, length: int) -> str:
    """Return the name of the hidden column of a prefix.  As with dropped columns, no other name ends with a space."""
    return f"prefix {length} of {position} "


def with_primary_prefixes(table: TableDef, parts: Sequence[str]) -> TableDef:
    """The table with the UNIQUE key on the prefixes of its primary key, if these parts of it have any."""
    places = key_positions(table.columns, parts)
    prefixes = [_prefix(table.columns[at], part) for at, part in zip(places, parts, strict=True)]
    return with_indexes(table, [(PRIMARY, parts, True)]) if any(prefixes) else table


def without_primary_key(table: TableDef) -> TableDef:
    if not table.primary_key:
        raise SqlError(*CANT_DROP_FIELD_OR_KEY, "Can't DROP 'PRIMARY'; check that column/key exists")
    return replace(table, primary_key=(), indexes=tuple(i for i in table.indexes if i.name != PRIMARY))


def _free(table: TableDef, name: str) -> str:
    taken, free, n = {i.name.lower() for i in all_keys(table)}, str(name), 2  # no `KeyPart`, which cannot be sent
    while free.lower() in taken:
        free, n = f"{name}_{n}", n + 1
    return free


def _with_fulltext(table: TableDef, name: str, places: tuple[int, ...]) -> TableDef:
    return replace(table, fulltext=(*table.fulltext, IndexDef(_free(table, name), places)))


def check_fulltext(table: TableDef) -> None:
    """Raise SqlError 1283 unless the columns of each FULLTEXT key are texts of one collation."""
    for index in table.fulltext:
        columns = [table.columns[at] for at in index.columns]
        for c in columns:
            plain = c.type.is_text and not (c.type.is_bytes or c.type.is_json or c.type.is_listed)
            if not plain or c.type.collation is not columns[0].type.collation:
                raise SqlError(*BAD_FT_COLUMN, f"Column '{c.name}' cannot be part of FULLTEXT index")


def _prefix(column: Column, part: str) -> int:
    length = part.prefix if isinstance(part, KeyPart) else 0
    if length and (not column.type.is_text or column.type.is_json or (
            column.type.length and length > column.type.length)):
        raise _wrong()
    return 0 if length == column.type.length else length


def _hidden(table: TableDef, base: int, length: int) -> tuple[TableDef, int]:
    """The table with the hidden column of a prefix, and its position."""
    name = prefix_name(base, length)
    known = next((at for at, c in enumerate(table.columns) if c.name == name and not c.dropped), None)
    if known is not None:
        return table, known
    column = _made(Column(name, table.columns[base].type, computed="prefix"), table.columns[base], length)
    return replace(table, columns=(*table.columns, column)), len(table.columns)


def _made(hidden: Column, base: Column, length: int) -> Column:
    type = replace(base.type, length=length, declared=base.type.declared if base.type.declared == "char" else "")
    return replace(hidden, type=type, expression=f"left({quote_identifier(base.name)}, {length})")


# ------------------------------------------------------------------ ALTER TABLE
def with_prefixes(table: TableDef, drop: Drop) -> TableDef:
    """The altered table, with hidden columns that follow those that they are of.

    A hidden column is dropped with its column, and when no index has it any longer.
    """
    for at, hidden in enumerate(table.columns):
        if hidden.computed == "key" and not hidden.dropped:
            used = any(at in i.columns for i in table.indexes)
            table = _retyped(table, at) if used else drop(table, at)
        if hidden.computed != "prefix":
            continue
        length, base = hidden.prefix_of
        if table.columns[base].dropped:
            base = next((c for c in table.shown if table.columns[c].source == base), base)
        if table.columns[base].dropped or not any(at in i.columns for i in table.indexes):
            table = drop(table, at)
            continue
        made = _made(replace(hidden, name=prefix_name(base, length)), table.columns[base], length)
        table = replace(table, columns=(*table.columns[:at], made, *table.columns[at + 1:]))
    return table


def _retyped(table: TableDef, at: int) -> TableDef:
    """The table with the type of an expression whose columns may have changed.  `regenerated` refuses missing ones."""
    hidden = table.columns[at]
    try:
        made = of_text(table, hidden.expression)
    except (KeyError, SqlError):
        return table
    hidden = replace(hidden, type=made.type, nullable=made.nullable)
    return replace(table, columns=(*table.columns[:at], hidden, *table.columns[at + 1:]))


def without_column(index: IndexDef, at: int) -> IndexDef:
    """The index without a column."""
    kept = [n for n, c in enumerate(index.columns) if c != at]
    prefix = tuple(index.prefix[n] for n in kept) if index.prefix else ()
    return replace(index, columns=tuple(index.columns[n] for n in kept), prefix=prefix if any(prefix) else ())


def all_keys(table: TableDef) -> tuple[IndexDef, ...]:
    """The table's indexes and FULLTEXT keys."""
    return (*table.indexes, *table.fulltext)


def changed_keys(table: TableDef, change: Callable[[IndexDef], IndexDef | None]) -> TableDef:
    """The table with each of its indexes and FULLTEXT keys changed, or dropped where `change` returns None."""
    kept, fulltext = (tuple(made for i in keys if (made := change(i)) is not None)
                      for keys in (table.indexes, table.fulltext))
    return replace(table, indexes=kept, fulltext=fulltext)


def moved_keys(table: TableDef, at: int, new: int | None) -> TableDef:
    """The table with a column of its keys replaced by another one, or left out of them (None)."""
    def moved(index: IndexDef) -> IndexDef | None:
        if new is not None:
            return replace(index, columns=tuple(new if c == at else c for c in index.columns))
        left = without_column(index, at)
        return left if left.columns else None

    primary = tuple(new if c == at else c for c in table.primary_key)
    return replace(changed_keys(table, moved), primary_key=tuple(c for c in primary if c is not None))
