"""Checks the FOREIGN KEYs of new rows at the worker that has all rows of their parents.

Keeps true: when an INSERT is done, each key of its rows has a parent.  A transaction has locked the parent.  A
statement by itself is committed before anything else runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noria.core.batch import Codes
from noria.core.errors import SqlError, definition_changed
from noria.core.errors.codes import NO_REFERENCED_ROW_2
from noria.core.expressions.key_condition import with_keys
from noria.core.limits import NULL_CODE
from noria.core.statements import ParentKey
from noria.core.symbols import Symbols
from noria.core.types import Kind
from noria.core.values import convert, python_values, to_arrow
from noria.storage.statements.find import find
from noria.storage.statements.stage import TableStage
from noria.storage.tables.table import Counters, StoredTable

KEYS_AT_ONCE = 200  # keys that one condition names


class _OrphanRefused(SqlError):
    """A new row has no parent.  Its AUTO_INCREMENT value is used up."""


def undo(stage: TableStage, mark: tuple[int, Counters], error: SqlError) -> None:
    """Undo a statement that has failed."""
    used = stage.counters.auto_increment
    stage.undo(mark)
    if isinstance(error, _OrphanRefused):
        stage.counters = stage.counters._replace(auto_increment=used)


def refuse_orphans(stage: TableStage, parents: Sequence[ParentKey], rows: Codes, symbols: Symbols) -> None:
    """Raise SqlError 1452 if a row lacks a parent, and 1412 if a parent is another table by now.

    stage: that of the rows, which it has already.
    """
    for key in parents:
        parent = stage if key.parent == stage.table.name else stage.of_parent(key.parent)
        if not parent.table.dropped.isdisjoint(key.parent_columns):
            raise definition_changed()
        codes = rows[list(key.columns)]
        whole = (codes != NULL_CODE).all(axis=0)
        if not whole.all():
            codes = codes[:, whole]
        if codes.shape[1] and not _have_parents(stage.table, parent, key, codes, symbols):
            raise _OrphanRefused(*NO_REFERENCED_ROW_2, key.message)


def _have_parents(child: StoredTable, parent: TableStage, key: ParentKey, codes: Codes, symbols: Symbols) -> bool:
    table = parent.table
    if sorted(key.parent_columns) == sorted(table.key) and _are_alike(child, table, key):
        at = [key.parent_columns.index(c) for c in table.key]
        keys = list(dict.fromkeys(table.columns_key([codes[n] for n in at], table.key)))
        if None in parent.get(table.family, keys):
            return False
        if parent.guard is not None:
            parent.guard.needs(keys)
        return True
    values = [python_values(to_arrow(codes[n], child.types[c], symbols)) for n, c in enumerate(key.columns)]
    wanted = list(dict.fromkeys(zip(*values, strict=True)))
    return all(_found(parent, key.parent_columns, wanted[at : at + KEYS_AT_ONCE], symbols)
               for at in range(0, len(wanted), KEYS_AT_ONCE))


def _are_alike(child: StoredTable, parent: StoredTable, key: ParentKey) -> bool:
    """Whether equal values have the same codes in the columns of both tables."""
    return all(child.types[c] == parent.types[p] or child.types[c].kind is parent.types[p].kind is Kind.INT
               for c, p in zip(key.columns, key.parent_columns, strict=True))


def _found(parent: TableStage, columns: tuple[int, ...], keys: Sequence[tuple[Any, ...]], symbols: Symbols) -> bool:
    table = parent.table
    found = find(parent, with_keys(table.definition, columns, keys), symbols)
    if parent.guard is not None:
        parent.guard.needs(found.keys)
    return not absent(table, columns, keys, found.codes, symbols)


def absent(table: StoredTable, columns: tuple[int, ...], keys: Sequence[tuple[Any, ...]], rows: Codes,
           symbols: Symbols) -> tuple[int, ...]:
    """The positions of the keys that none of the rows has, as the columns' collations compare."""
    codes = [convert([key[n] for key in keys], table.definition.columns[c], 1, symbols) for n, c in enumerate(columns)]
    there = set(table.columns_key([rows[c] for c in columns], columns))
    return tuple(n for n, key in enumerate(table.columns_key(codes, columns)) if key not in there)
