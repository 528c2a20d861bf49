"""FOREIGN KEYs of a table, compared with the tables that they refer to.  Pure.

    child.columns ──refer to──► parent.parent_columns, which are the parent's primary key or a UNIQUE key of it

Keeps true: the columns on both sides have the same types, so that equal codes are equal values.  A key without a parent
is compared as soon as a table gets its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from noria.core.errors import SqlError
from noria.core.errors.codes import (
    DEPENDENT_BY_OTHERS,
    DROP_INDEX_FK,
    FK_CANNOT_OPEN_PARENT,
    FK_CANNOT_USE_VIRTUAL_COLUMN,
    FK_COLUMN_CANNOT_CHANGE,
    FK_COLUMN_CANNOT_CHANGE_CHILD,
    FK_COLUMN_CANNOT_DROP_CHILD,
    FK_INCOMPATIBLE_COLUMNS,
    FK_NO_COLUMN_PARENT,
    FK_NO_UNIQUE_INDEX_PARENT,
)
from noria.core.identifiers import quote_identifier, without_database
from noria.core.types import ForeignKey, SqlType, TableDef
from noria.sql.statements.foreign_keys import renamed_keys, supporting, unique_over

Tables = Mapping[str, TableDef]  # by folded names


# ------------------------------------------------------------------ what refers to what
def children(tables: Tables, name: str) -> Iterator[tuple[TableDef, ForeignKey]]:
    """The keys of other tables that refer to this one."""
    for table in tables.values():
        if table.name.lower() != name.lower():
            yield from ((table, key) for key in table.foreign_keys if key.refers_to(name))


def parent_of(tables: Tables, table: TableDef, key: ForeignKey) -> TableDef | None:
    return table if key.refers_to(table.name) else tables.get(key.parent.lower())


def kept_keys(was: TableDef, table: TableDef) -> dict[str, ForeignKey]:
    """The keys that the altered table had before, by their present names."""
    before = {_name_in(was, k, table.name): k for k in was.foreign_keys}
    return {k.name: before[k.name] for k in table.foreign_keys
            if k.name in before and _same(was, before[k.name], table, k)}


def _name_in(was: TableDef, key: ForeignKey, name: str) -> str:
    (renamed,) = renamed_keys(replace(was, foreign_keys=(key,)), replace(was, name=name, foreign_keys=(key,))
                              ).foreign_keys
    return renamed.name


def _same(was: TableDef, old: ForeignKey, table: TableDef, key: ForeignKey) -> bool:
    own = key.refers_to(table.name) and old.refers_to(was.name)
    return tuple(successor(table, c) for c in old.columns) == key.columns and (
        own or key.refers_to(old.parent)) and key.parent_columns == old.parent_columns


def new_keys(was: TableDef, table: TableDef) -> list[ForeignKey]:
    kept = kept_keys(was, table)
    return [k for k in table.foreign_keys if k.name not in kept]


def successor(table: TableDef, at: int) -> int:
    """The position of the column that has the values of this one, which the table perhaps converted."""
    if table.columns[at].dropped:
        return next((i for i, c in enumerate(table.columns) if c.source == at and not c.dropped), at)
    return at


# ------------------------------------------------------------------ a table and its parents
def refuse_unfit(tables: Tables, table: TableDef, new: Sequence[ForeignKey], checks: bool) -> None:
    """Raise SqlError if a key of the table does not fit its parent, or if a key in `new` has none.

    checks: whether a new key needs a parent.  tables: those beside this one.
    """
    for key in table.foreign_keys:
        parent = parent_of(tables, table, key)
        if parent is not None:
            _refuse_unfit(table, key, parent)
        elif checks and key in new:
            raise SqlError(*FK_CANNOT_OPEN_PARENT, "Failed to open the referenced table "
                                                   f"'{without_database(key.parent)}'")


def refuse_unfit_children(tables: Tables, parent: TableDef) -> None:
    """Raise SqlError if a key of another table does not fit this one, which is new under its name."""
    for child, key in children(tables, parent.name):
        _refuse_unfit(child, key, parent)


def _refuse_unfit(child: TableDef, key: ForeignKey, parent: TableDef) -> None:
    places, what = list[int](), "Failed to add the foreign key constraint."
    for at, name in zip(key.columns, key.parent_columns, strict=True):
        try:
            place = parent.position(name)
        except KeyError:
            raise SqlError(*FK_NO_COLUMN_PARENT, f"{what} Missing column '{name}' for constraint '{key.name}' in the "
                                                 f"referenced table '{without_database(parent.name)}'") from None
        column = parent.columns[place]
        if column.computed == "virtual":
            raise SqlError(*FK_CANNOT_USE_VIRTUAL_COLUMN,
                           f"Foreign key '{key.name}' uses virtual column '{column.name}' which is not supported.")
        if not comparable(child.columns[at].type, column.type):
            raise SqlError(*FK_INCOMPATIBLE_COLUMNS,
                           f"Referencing column '{child.columns[at].name}' and referenced column '{column.name}' in "
                           f"foreign key constraint '{key.name}' are incompatible.")
        places.append(place)
    if unique_over(parent, places) is None:
        raise SqlError(*FK_NO_UNIQUE_INDEX_PARENT, f"{what} Missing unique key for constraint '{key.name}' in the "
                                                   f"referenced table '{without_database(parent.name)}'")


def comparable(a: SqlType, b: SqlType) -> bool:
    """Whether equal values of the two types have codes that are compared alike.  The lengths of texts may differ."""
    if a.is_text and b.is_text:
        return (a.collation, a.is_json) == (b.collation, b.is_json)
    return (a.kind, a.bits, a.unsigned, a.precision, a.scale, a.timestamp, a.members, a.declared == "year") == (
        b.kind, b.bits, b.unsigned, b.precision, b.scale, b.timestamp, b.members, b.declared == "year")


# ------------------------------------------------------------------ changes
def refuse_broken(was: TableDef, table: TableDef, checks: bool) -> None:
    """Raise SqlError if the altered table lacks what its own former keys need: a type (checks), or an index."""
    for name, old in kept_keys(was, table).items():
        key = next(k for k in table.foreign_keys if k.name == name)
        for before, at in zip(old.columns, key.columns, strict=True):
            if checks and not comparable(was.columns[before].type, table.columns[at].type):
                raise SqlError(*FK_COLUMN_CANNOT_CHANGE, f"Cannot change column '{was.columns[before].name}': used in "
                                                         f"a foreign key constraint '{name}'")
        if supporting(table, key.columns) is None:
            raise _needed(supporting(was, old.columns))


def _needed(index: str | None) -> SqlError:
    return SqlError(*DROP_INDEX_FK, f"Cannot drop index '{index}': needed in a foreign key constraint")


def following(tables: Tables, was: TableDef, table: TableDef, checks: bool) -> tuple[TableDef, list[TableDef]]:
    """The altered table and the other tables that refer to it, with its names in their keys.

    Raises SqlError if it lacks what their keys need: a column, its type (checks), or the key over the columns.
    """
    own = kept_keys(was, table)
    mine = [replace(k, parent=table.name, parent_columns=_renamed(was, table, table, own[k.name], checks))
            if k.name in own and own[k.name].refers_to(was.name) else k for k in table.foreign_keys]
    made = replace(table, foreign_keys=tuple(mine))
    found = dict[str, TableDef]()
    for child, key in children(tables, was.name):
        child = found.get(child.name.lower(), child)
        named = replace(key, parent=table.name, parent_columns=_renamed(was, table, child, key, checks))
        found[child.name.lower()] = replace(child, foreign_keys=tuple(
            named if k.name == key.name else k for k in child.foreign_keys))
    return made, [t for n, t in found.items() if t != tables[n]]


def _renamed(was: TableDef, table: TableDef, child: TableDef, key: ForeignKey, checks: bool) -> tuple[str, ...]:
    """The present names of the columns that a key of `child` refers to."""
    before = key.positions_in(was)
    after = tuple(successor(table, c) for c in before)
    for old, at in zip(before, after, strict=True):
        name, of = was.columns[old].name, f"constraint '{key.name}' of table '{without_database(child.name)}'"
        if table.columns[at].dropped:
            raise SqlError(*FK_COLUMN_CANNOT_DROP_CHILD, f"Cannot drop column '{name}': needed in a foreign key {of}")
        if checks and not comparable(was.columns[old].type, table.columns[at].type):
            raise SqlError(*FK_COLUMN_CANNOT_CHANGE_CHILD, f"Cannot change column '{name}': used in a foreign key {of}")
    if unique_over(table, after) is None:
        raise _needed(unique_over(was, before))
    return tuple(table.columns[c].name for c in after)


def refuse_dropped_parent(tables: Tables, gone: Sequence[str]) -> None:
    """Raise error 3730 if a table that stays refers to one that is dropped.  gone: their names."""
    folded = {n.lower() for n in gone}
    for name in gone:
        for child, key in children(tables, name):
            if child.name.lower() not in folded:
                raise dropped_parent(name, child, key)


def dropped_parent(name: str, child: TableDef, key: ForeignKey) -> SqlError:
    return SqlError(*DEPENDENT_BY_OTHERS, f"Cannot drop table '{without_database(name)}' referenced by a foreign key "
                                          f"constraint '{key.name}' on table '{without_database(child.name)}'.")


# ------------------------------------------------------------------ rows
def orphans_text(table: TableDef, key: ForeignKey, parent: TableDef, called: Callable[[str], str]) -> str:
    """The SELECT that counts the rows of the table for which the key has no row in the parent.  called: how to write
    the tables' names."""
    columns = [f"c.{quote_identifier(table.columns[at].name)}" for at in key.columns]
    others = [f"p.{quote_identifier(name)}" for name in key.parent_columns]
    there = " AND ".join(f"{c} IS NOT NULL" for c in columns)
    return (f"SELECT COUNT(*) AS n FROM {called(table.name)} AS c LEFT JOIN {called(parent.name)} AS p "
            f"ON {' AND '.join(f'{a} = {b}' for a, b in zip(others, columns, strict=True))} "
            f"WHERE {there} AND {others[0]} IS NULL")
