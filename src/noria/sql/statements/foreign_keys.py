"""FOREIGN KEYs as a table declares them.  `control/ddl/foreign_keys.py` compares them with the tables they refer to.

    [CONSTRAINT name] FOREIGN KEY [index_name] (columns) REFERENCES parent (columns) [ON DELETE …] [ON UPDATE …]
    column type [CONSTRAINT name] REFERENCES parent (column) …

The second form means the same, as in MySQL 9; MySQL 8 ignores it.

Keeps true: a key's columns exist, its name is the only one of its table, and an index of the table begins with its
columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from noria.core.errors import SqlError, parse_error
from noria.core.errors.codes import (
    CANNOT_ADD_FOREIGN,
    CANNOT_ADD_FOREIGN_BASE_COL_STORED,
    CANT_DROP_FIELD_OR_KEY,
    FK_CANNOT_USE_VIRTUAL_COLUMN,
    FK_COLUMN_CANNOT_DROP,
    FK_COLUMN_NOT_NULL,
    FK_DUP_NAME,
    WRONG_FK_DEF,
    WRONG_FK_OPTION_FOR_GENERATED_COLUMN,
)
from noria.core.identifiers import refuse_repeated_columns, without_database
from noria.core.types import Action, ForeignKey, TableDef
from noria.sql.expressions.table_expressions import names_in, parsed
from noria.sql.statements.keys import KeyPart, key_positions, with_indexes
from noria.sql.text.refusals import refuse
from noria.sql.text.syntax import check_parts, snippet

Name = Callable[[str], str]  # checks the name of a new constraint


class Declared(NamedTuple):
    """A FOREIGN KEY as it is written.  name, index_name: "" without one.  parent: the catalog's name."""

    name: str
    index_name: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    on_delete: Action
    on_update: Action


# ------------------------------------------------------------------ reading
def declared(nodes: Iterable[exp.Expr]) -> list[Declared]:
    """The FOREIGN KEYs of a table's columns and parts, or of an ALTER TABLE's, in the order of the text."""
    return [key for node in nodes for key in _declared(node)]


def is_foreign_key(node: exp.Expr) -> bool:
    """Whether a part of a table, or of ADD, declares nothing but a FOREIGN KEY."""
    if isinstance(node, exp.Constraint):
        return len(node.expressions) == 1 and is_foreign_key(node.expressions[0])
    return isinstance(node, exp.ForeignKey)


def _declared(node: exp.Expr) -> Iterator[Declared]:
    if isinstance(node, exp.ModifyColumn):
        yield from _declared(node.this)
    elif isinstance(node, exp.AddConstraint):
        for part in node.expressions:
            yield from _declared(part)
    elif isinstance(node, exp.ColumnDef):
        for part in node.args.get("constraints") or []:
            if isinstance(part.kind, exp.Reference):
                yield _read(part.kind, part.this, "", (node.name,))
    elif isinstance(node, exp.Constraint) and is_foreign_key(node):
        yield _table_key(node.expressions[0], node.this)
    elif isinstance(node, exp.ForeignKey):
        yield _table_key(node, None)


def _table_key(node: exp.Expr, name: exp.Expr | None) -> Declared:
    check_parts(node, frozenset({"this", "expressions", "reference"}), "FOREIGN KEY")
    index = node.this.name if node.this is not None else ""
    if node.args.get("reference") is None:
        raise parse_error(f"FOREIGN KEY without REFERENCES, near '{snippet(node)}'")
    return _read(node.args["reference"], name, index, tuple(map(_column, node.expressions)))


def _read(node: exp.Expr, name: exp.Expr | None, index: str, columns: tuple[str, ...]) -> Declared:
    check_parts(node, frozenset({"this", "options"}), "REFERENCES")
    called = "" if name is None else name.name
    to, parts = (node.this.this, node.this.expressions) if isinstance(node.this, exp.Schema) else (node.this, [])
    if len(parts) != len(columns):
        raise SqlError(*WRONG_FK_DEF, f"Incorrect foreign key definition for '{called or 'foreign key without name'}': "
                                      "Key reference and table reference don't match")
    on_delete, on_update = _actions(node, called)
    return Declared(called, index, columns, to.name, tuple(map(_column, parts)), on_delete, on_update)


def _column(node: exp.Expr) -> str:
    if not isinstance(node, (exp.Identifier, exp.Column)):
        raise refuse("this in a FOREIGN KEY", node, "name whole columns")
    return str(node.name)


def _actions(node: exp.Expr, name: str) -> tuple[Action, Action]:
    """What happens ON DELETE and ON UPDATE."""
    found: dict[str, Action] = {}
    for option in node.args.get("options") or []:
        words = str(option).upper()
        on, _, action = words.partition(" ")[2].partition(" ")
        if not words.startswith("ON ") or on not in ("DELETE", "UPDATE"):
            raise refuse(f"{words} in a FOREIGN KEY", node, "leave it out")
        if on in found:
            raise parse_error(f"ON {on} occurs twice, near '{snippet(node)}'")
        if action == "SET DEFAULT":
            raise SqlError(*CANNOT_ADD_FOREIGN, f"Cannot add foreign key constraint{name and f' {name!r}'}: ON {on} "
                                                "SET DEFAULT is not supported")
        if action not in _ACTIONS:
            raise parse_error(f"near '{words}'")
        found[on] = _ACTIONS[action]
    return found.get("DELETE", Action.NO_ACTION), found.get("UPDATE", Action.NO_ACTION)


_ACTIONS = {a.value: a for a in Action}


# ------------------------------------------------------------------ a definition with them
def with_foreign_keys(table: TableDef, more: Sequence[Declared], check_name: Name) -> TableDef:
    """The table with further keys, each with an index.  One without a name is called after the table: t_ibfk_1, …"""
    if not more:
        return table
    last = max((n for k in table.foreign_keys if (n := _number(table.name, k.name))), default=0)
    for key in more:
        name = check_name(key.name) if key.name else ""
        if not name:
            last += 1
            name = f"{without_database(table.name)}_ibfk_{last}"
        if has_foreign_key(table, name):
            raise SqlError(*FK_DUP_NAME, f"Duplicate foreign key constraint name '{name}'")
        refuse_repeated_columns(key.parent_columns)
        columns = key_positions(table.columns, key.columns)
        made = ForeignKey(name, columns, key.parent, key.parent_columns, key.on_delete, key.on_update)
        if supporting(table, columns) is None:
            parts = [KeyPart(table.columns[c].name) for c in columns]
            table = with_indexes(table, [(key.name or key.index_name or parts[0], parts, False)])
        table = replace(table, foreign_keys=_in_order([*table.foreign_keys, made]))
    return table


def _number(table: str, name: str) -> int:
    """The n of a generated name t_ibfk_n, or 0."""
    found = re.fullmatch(re.escape(without_database(table).lower()) + r"_ibfk_([1-9][0-9]*)", name.lower())
    return int(found[1]) if found else 0


def _in_order(keys: Iterable[ForeignKey]) -> tuple[ForeignKey, ...]:
    return tuple(sorted(keys, key=lambda k: k.name.lower()))


def supporting(table: TableDef, columns: Sequence[int]) -> str | None:
    """The name of a key of the table that begins with these columns, or None."""
    names = _supporting(table, columns)
    return next(names, None)


def _supporting(table: TableDef, columns: Sequence[int]) -> Iterator[str]:
    wanted, width = tuple(columns), len(columns)
    if table.primary_key[:width] == wanted:
        yield "PRIMARY"
    for index in table.indexes:
        if index.columns[:width] == wanted and not any(index.prefix[:width]):
            yield index.name


def unique_over(table: TableDef, columns: Sequence[int]) -> str | None:
    """The name of the primary or UNIQUE key that has exactly these columns in this order, or None."""
    wanted = tuple(columns)
    if table.primary_key == wanted:
        return "PRIMARY"
    return next((i.name for i in table.indexes if i.unique and i.columns == wanted and not any(i.prefix)), None)


# ------------------------------------------------------------------ what the table itself must be like
def checked_keys(table: TableDef) -> TableDef:
    """Return the table.  Raises SqlError if a column of a key was dropped or cannot have its actions."""
    for key in table.foreign_keys:
        for at in key.columns:
            _check_column(table, key, at)
    return table


def _check_column(table: TableDef, key: ForeignKey, at: int) -> None:
    column, actions = table.columns[at], (key.on_delete, key.on_update)
    if column.computed == "virtual":
        raise SqlError(*FK_CANNOT_USE_VIRTUAL_COLUMN,
                       f"Foreign key '{key.name}' uses virtual column '{column.name}' which is not supported.")
    if column.computed == "stored":
        clause = "ON DELETE SET NULL" if key.on_delete is Action.SET_NULL else (
            "" if key.on_update.refuses else f"ON UPDATE {key.on_update.value}")
        if clause:
            raise SqlError(*WRONG_FK_OPTION_FOR_GENERATED_COLUMN,
                           f"Cannot define foreign key with {clause} clause on a generated column.")
    if Action.SET_NULL in actions and not column.nullable:
        raise SqlError(*FK_COLUMN_NOT_NULL, f"Column '{column.name}' cannot be NOT NULL: needed in a foreign key "
                                            f"constraint '{key.name}' SET NULL")
    if not all(a.refuses for a in actions) and any(
            c.computed == "stored" and not c.dropped and column.name.lower() in _read_by(c.expression)
            for c in table.columns):
        raise SqlError(*CANNOT_ADD_FOREIGN_BASE_COL_STORED,
                       "Cannot add foreign key on the base column of stored column")


def _read_by(expression: str) -> set[str]:
    return {n.lower() for n in names_in(parsed(expression))}


def refuse_dropped(was: TableDef, table: TableDef) -> None:
    """Raise error 1828 if a key of the altered table has a column that was dropped."""
    for key in table.foreign_keys:
        for at in key.columns:
            if table.columns[at].dropped:
                raise SqlError(*FK_COLUMN_CANNOT_DROP, f"Cannot drop column '{was.columns[at].name}': needed in a "
                                                       f"foreign key constraint '{key.name}'")


# ------------------------------------------------------------------ changes
def has_foreign_key(table: TableDef, name: str) -> bool:
    return any(k.name.lower() == name.lower() for k in table.foreign_keys)


def without_foreign_key(table: TableDef, name: str) -> TableDef:
    """Drop a key; its index stays.  Raises error 1091 if there is none of this name."""
    if not has_foreign_key(table, name):
        raise SqlError(*CANT_DROP_FIELD_OR_KEY, f"Can't DROP '{name}'; check that column/key exists")
    return replace(table, foreign_keys=tuple(k for k in table.foreign_keys if k.name.lower() != name.lower()))


def with_indexed_keys(table: TableDef) -> TableDef:
    """The table without the keys that no index serves any longer."""
    return replace(table, foreign_keys=tuple(k for k in table.foreign_keys if supporting(table, k.columns) is not None))


def moved(keys: tuple[ForeignKey, ...], at: int, new: int) -> tuple[ForeignKey, ...]:
    """The keys with another column in the place of one."""
    return tuple(replace(k, columns=tuple(new if c == at else c for c in k.columns)) for k in keys)


def renamed_keys(was: TableDef, table: TableDef) -> TableDef:
    """The renamed table: generated names and references to itself follow its name."""
    if not was.foreign_keys:
        return table
    keys = [replace(k, name=f"{without_database(table.name)}_ibfk_{n}") if (n := _number(was.name, k.name)) else k
            for k in table.foreign_keys]
    return replace(table, foreign_keys=_in_order(
        replace(k, parent=table.name) if k.refers_to(was.name) else k for k in keys))
