"""What an ALTER TABLE asks of a table's rows, and takes from its views.  Pure."""

from __future__ import annotations

from noria.core.types import TableDef
from noria.plan.uses import changed, used
from noria.plan.view import ViewDef
from noria.sql import commands


def refits(command: commands.AlterTable) -> bool:
    """Must rows fit other types, stop being NULL, be told apart, get another key, or be counted on?"""
    was, table = command.was, command.table
    known = zip(was.columns, table.columns, strict=False)
    return any((a.type, a.nullable) != (b.type, b.nullable) and not b.dropped for a, b in known) \
        or any(c.source is not None for c in table.columns[len(was.columns):]) \
        or loses_unique(table, was) or was.keyed != table.keyed or was.auto_increment != table.auto_increment


def loses_unique(was: TableDef, table: TableDef) -> bool:
    """Has the first definition a UNIQUE index that the other one has not?"""
    return bool({i.columns for i in was.indexes if i.unique} - {i.columns for i in table.indexes if i.unique})


def lost(command: commands.AlterTable, view: ViewDef) -> list[int]:
    """The columns that the view needs, and that are not what they were afterwards."""
    mine = [(b.table, columns) for b, columns in used(view.plan).items() if b.table.table_id == command.was.table_id]
    return [c for was, columns in mine for c in sorted(columns) if changed(was, command.table, c)]
