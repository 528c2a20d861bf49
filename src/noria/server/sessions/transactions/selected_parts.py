"""The statements of a write whose rows a SELECT has found, some rows at a time.  Pure.

    UPDATE: rows (1, 'x'), (2, 'y')   →   UPDATE t SET a = CASE WHEN id = 1 THEN 'x' WHEN id = 2 THEN 'y' END
                                          WHERE id IN (1, 2)

UPDATE IGNORE and DELETE IGNORE write each row by itself.

Keeps true: each key is written once, with the first row that has it.  A key with NULL is no row: an outer join found
none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noria.core.expressions.expr import Const, Expr, const
from noria.core.expressions.functions import NULL, call, rebuilt
from noria.core.expressions.key_condition import with_keys
from noria.core.statements import NEW, Delete, Insert, Update
from noria.core.types import Field, TableDef
from noria.sql.commands import SelectedWrite, WriteTarget

INSERTED_ROWS = 1_000  # of one statement
UPDATED_ROWS, DELETED_ROWS = 100, 500

Row = Sequence[Any]


def parts_of(command: SelectedWrite, fields: Sequence[Field], rows: Sequence[Row]
             ) -> Iterator[Insert | Update | Delete]:
    """Return the statements that write the found rows."""
    if command.insert is not None:
        for at in range(0, len(rows), INSERTED_ROWS):
            yield command.insert._replace(rows=tuple(map(tuple, rows[at : at + INSERTED_ROWS])))
        return
    for target in command.targets:
        by_key = _by_key(target, rows)
        keys = list(by_key)
        assigned = target.assignments
        at_once = 1 if command.ignore else DELETED_ROWS if assigned is None else UPDATED_ROWS
        for at in range(0, len(keys), at_once):
            some = keys[at : at + at_once]
            where = with_keys(target.table, target.table.primary_key, some)
            if assigned is None:
                yield Delete(target.table.name, where)
            else:
                yield Update(target.table.name, _assignments(target.table, assigned, fields, some, by_key), where)


def _by_key(target: WriteTarget, rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    end = target.at + len(target.table.primary_key)
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[target.at : end])
        if None not in key:
            found.setdefault(key, row)
    return found


def _assignments(table: TableDef, assigned: Sequence[tuple[int, Expr]], fields: Sequence[Field],
                 keys: Sequence[tuple[Any, ...]], rows: Mapping[tuple[Any, ...], Row]) -> tuple[tuple[int, Expr], ...]:
    """The assignments with the found values in them."""
    known: dict[int, Expr] = {}

    def value(at: int) -> Expr:
        if at not in known:
            known[at] = _value(table, fields[at], keys, [rows[key][at] for key in keys])
        return known[at]

    return tuple((c, rebuilt(e, lambda col: value(col.index - NEW) if col.index >= NEW else col)) for c, e in assigned)


def _value(table: TableDef, field: Field, keys: Sequence[tuple[Any, ...]], values: Sequence[Any]) -> Expr:
    """The value of each key: one for all, or a CASE."""
    consts = [Const(field.type, True, None) if v is None else const(v, field.type) for v in values]
    if all(v == values[0] and type(v) is type(values[0]) for v in values):
        return consts[0]
    whens = [e for key, c in zip(keys, consts, strict=True)
             for e in (with_keys(table, table.primary_key, [key]), c)]
    return call("case", *whens, NULL)


__all__ = ["parts_of"]
