"""What an ALTER TABLE requires of a table's rows and removes from its views.  Pure."""

from __future__ import annotations

from noria.core.types import TableDef
from noria.plan.uses import changed, columns_used
from noria.plan.view import ViewDef
from noria.sql import commands


def refits(command: commands.AlterTable) -> bool:
    """True if rows must be checked: for other types, NOT NULL, CHECK, UNIQUE, another key or AUTO_INCREMENT column."""
    was, table = command.was, command.table
    known = zip(was.columns, table.columns, strict=False)
    return any((a.type, a.nullable) != (b.type, b.nullable) and not b.dropped for a, b in known) \
        or any(c.source is not None for c in table.columns[len(was.columns):]) \
        or not {c.text for c in table.enforced} <= {c.text for c in was.enforced} \
        or (bool(table.enforced or table.generated) and len(table.columns) > len(was.columns)) \
        or loses_unique(table, was) or was.keyed != table.keyed or was.auto_increment != table.auto_increment


def loses_unique(was: TableDef, table: TableDef) -> bool:
    """True if the first definition has a UNIQUE index that the second lacks."""
    return bool({i.columns for i in was.indexes if i.unique} - {i.columns for i in table.indexes if i.unique})


def lost(command: commands.AlterTable, view: ViewDef) -> list[int]:
    """The columns that the view needs and the command changes."""
    if all(t.table_id != command.was.table_id for t in view.plan.tables_below.values()):
        return []  # the usual case, of many views
    mine = [(b.table, columns) for b,
            columns in columns_used(view.plan).items() if b.table.table_id == command.was.table_id]
    return [c for was, columns in mine for c in sorted(columns) if changed(was, command.table, c)]
