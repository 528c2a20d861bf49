"""FOREIGN KEYs in changes of the program: refuses what would break one, and counts the rows that have no parent.

    ALTER TABLE … ADD FOREIGN KEY:  the definition is in force ─► `in_force` ─► rows are counted ─► it stays
                                                                              └─► error 1452, and it is taken back

Keeps true: a key whose parent exists fits it (`sql/program/references.py`), because each change that could break
that is refused or changes the children, too, in the same packet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold
from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import FK_DUP_NAME, NO_REFERENCED_ROW_2, TRUNCATE_ILLEGAL_FK
from noria.core.identifiers import quote_identifier
from noria.core.types import NOW, Column, ForeignKey, TableDef, gone
from noria.runtime.transactions.client_transactions import ClientTransactions
from noria.runtime.transactions.foreign_keys import ForeignKeyChecks
from noria.sql import commands
from noria.sql.program.definition_text import foreign_key_text
from noria.sql.program.references import (
    children,
    dropped_parent,
    following,
    new_keys,
    orphans_text,
    parent_of,
    refuse_broken,
    refuse_dropped_parent,
    refuse_unfit,
    refuse_unfit_children,
)
from noria.sql.statements.checks import renamed
from noria.sql.statements.foreign_keys import renamed_keys

Count = Callable[[str], Awaitable[int]]  # the number that a SELECT returns


async def _nothing(table: TableDef) -> None:
    """Wait for nothing."""


class ForeignKeys:
    """Checks changes of tables against the FOREIGN KEYs of all of them.

    count: runs the SELECT that counts rows without a parent; None without a server.

    in_force: is awaited when a new key is in all catalogs, and before its rows are counted.  When it returns, each
    write that began without the key must have ended, and all workers must have its effects.  So a row without a parent
    is counted, or its write is refused.

    loaded: likewise, waits for bulk loads.
    """

    def __init__(self, catalog: ProgramCatalog):
        self._catalog = catalog
        self._coordinator: ClientTransactions | None = None
        self.count: Count | None = None
        self.in_force: Callable[[TableDef], Awaitable[None]] = _nothing
        self.loaded: Callable[[TableDef], Awaitable[None]] = _nothing

    def checks(self, coordinator: ClientTransactions) -> ForeignKeyChecks:
        """What keeps the keys when transactions of this coordinator write."""
        self._coordinator = coordinator
        return ForeignKeyChecks(coordinator, lambda: self._catalog.table_defs, lambda: self._catalog.version,
                                self._described)

    def _described(self, table: TableDef, key: ForeignKey) -> str:
        return f"{self._full(table)}, {foreign_key_text(table, key, self._called_in(table))}"

    @property
    def has_any(self) -> bool:
        """True if a table has a FOREIGN KEY."""
        return any(t.foreign_keys for t in self._catalog.table_defs.values())

    def concern(self, table: str) -> bool:
        """True if a write of the table could break a key."""
        tables = self._catalog.table_defs
        mine = tables.get(fold(table))
        return mine is not None and bool(mine.foreign_keys or any(True for _ in children(tables, table)))

    def refuse_unchecked(self, table: str) -> None:
        """Raise SqlError if a write that does not keep FOREIGN KEYs could break one."""
        if self.concern(table):
            name = self._catalog.table_defs[fold(table)].name
            raise not_supported(f"writing '{name}', which has a FOREIGN KEY or is referred to, in this way",
                                "use SQL statements, or add the key afterwards: ALTER TABLE checks all rows")

    def parents(self, table: TableDef) -> list[tuple[ForeignKey, TableDef | None, str]]:
        """The keys of a table, each with the table that it refers to and the message of error 1452."""
        return [(key, parent_of(self._catalog.table_defs, table, key), self._orphan_text(table, key))
                for key in table.foreign_keys]

    def removals(self, parents: Iterable[str]) -> int:
        """A number that grows before and after each commit that removes keys of these tables."""
        counted = Counter[str]() if self._coordinator is None else self._coordinator.removals
        return sum(counted[name.lower()] for name in parents)

    def _orphan_text(self, table: TableDef, key: ForeignKey) -> str:
        return ("Cannot add or update a child row: a foreign key constraint fails "
                f"({self._described(table, key)})")

    # ------------------------------------------------------------ definitions
    def created(self, command: commands.CreateTable) -> TableDef:
        """The new table.  Raises SqlError if a key of it, or one that waits for a table of its name, does not fit."""
        tables, table = self._catalog.table_defs, self._named(command.table)
        self._refuse_taken(tables.values(), table)
        refuse_unfit(tables, table, table.foreign_keys, command.foreign_key_checks)
        refuse_unfit_children(tables, table)
        return table

    def altered(self, command: commands.AlterTable) -> tuple[TableDef, list[TableDef]]:
        """The altered table, and the tables that refer to it with its new names, if they change.

        Raises SqlError if it lacks what a key needs.
        """
        was, tables = command.was, self._catalog.table_defs
        others = {n: t for n, t in tables.items() if n != fold(was.name)}
        table = self._named(command.table)
        refuse_broken(was, table, command.foreign_key_checks)
        table, changed = following(others, was, table, command.foreign_key_checks)
        others |= {fold(t.name): t for t in changed}
        self._refuse_taken(others.values(), table)
        refuse_unfit(others, table, new_keys(was, table), command.foreign_key_checks)
        refuse_unfit_children(others, table)
        return table, changed

    def renamed(self, others: Mapping[str, TableDef], was: TableDef, name: str) -> tuple[TableDef, list[TableDef]]:
        """As `altered`, for another name.  others: the other tables by folded names."""
        table, changed = following(others, was, renamed_keys(was, renamed(was, name)), False)
        then = {**others, **{fold(t.name): t for t in changed}}
        self._refuse_taken(then.values(), table)
        refuse_unfit_children(then, table)
        return table, changed

    def refuse_applied(self, created: Sequence[TableDef], altered: Sequence[commands.AlterTable],
                       dropped: Sequence[str]) -> None:
        """Raise SqlError if a key would not fit after these changes, which are made at once."""
        tables = {n: t for n, t in self._catalog.table_defs.items() if n not in {fold(d) for d in dropped}}
        new: dict[str, Sequence[ForeignKey]] = {fold(t.name): t.foreign_keys for t in created}
        new |= {fold(a.table.name): new_keys(a.was, a.table) for a in altered}
        tables |= {fold(t.name): t for t in (*created, *(a.table for a in altered))}
        for name in dropped:
            for child, key in children(tables, name):
                if key not in new.get(fold(child.name), ()):
                    raise dropped_parent(name, child, key)
        for name, table in tables.items():
            if table.foreign_keys:
                self._refuse_taken((t for n, t in tables.items() if n != name), table)
                refuse_unfit(tables, table, new.get(name, ()), True)

    def refuse_dropped(self, names: Sequence[str], checks: bool) -> None:
        """Raise error 3730 if a table that stays refers to one of these."""
        if checks:
            refuse_dropped_parent(self._catalog.table_defs, names)

    def refuse_truncated(self, command: commands.Truncate) -> None:
        if not command.foreign_key_checks:
            return
        for child, key in children(self._catalog.table_defs, command.name):
            raise SqlError(*TRUNCATE_ILLEGAL_FK, "Cannot truncate a table referenced in a foreign key constraint "
                                                 f"({self._full(child)}, CONSTRAINT {quote_identifier(key.name)})")

    def _named(self, table: TableDef) -> TableDef:
        """The table, with the names of its parents and their columns as these were created."""
        def named(key: ForeignKey) -> ForeignKey:
            parent = parent_of(self._catalog.table_defs, table, key)
            if parent is None:
                return key
            spelt = {name.lower(): name for _, name in parent.shape}
            columns = tuple(spelt.get(c.lower(), c) for c in key.parent_columns)
            return replace(key, parent=parent.name, parent_columns=columns)

        return replace(table, foreign_keys=tuple(map(named, table.foreign_keys)))

    def _refuse_taken(self, others: Iterable[TableDef], table: TableDef) -> None:
        """Raise error 1826 if another table of the database has a key of the same name."""
        if not table.foreign_keys:
            return
        split = self._catalog.databases.split
        mine, names = split(table.name)[0], {k.name.lower(): k.name for k in table.foreign_keys}
        for other in others:
            for key in other.foreign_keys if split(other.name)[0] == mine else ():
                if key.name.lower() in names:
                    raise SqlError(*FK_DUP_NAME,
                                   f"Duplicate foreign key constraint name '{names[key.name.lower()]}'")

    def _full(self, table: TableDef) -> str:
        return self._catalog.databases.full(table.name)

    def _called_in(self, table: TableDef) -> Callable[[str], str]:
        databases = self._catalog.databases
        return partial(databases.called_in, databases.split(table.name)[0])

    # ------------------------------------------------------------ rows
    def to_count(self, command: commands.AlterTable) -> list[ForeignKey]:
        """The keys of an altered table whose rows must be counted."""
        return new_keys(command.was, command.table) if command.foreign_key_checks else []

    async def refuse_orphans(self, table: TableDef, keys: Sequence[ForeignKey]) -> None:
        """Raise error 1452 if a row of the table has no parent for one of these keys."""
        for key in keys:
            parent = parent_of(self._catalog.table_defs, table, key)
            if self.count is None or parent is None:
                continue
            if await self.count(orphans_text(table, key, parent, self._catalog.databases.full)):
                raise SqlError(*NO_REFERENCED_ROW_2, self._orphan_text(table, key))


def keeps_rows(command: commands.AlterTable) -> bool:
    """True if the command drops and converts no column: then `taken_back` undoes all of it."""
    was, table = command.was, command.table
    known = zip(was.columns, table.columns, strict=False)
    return was.keyed == table.keyed and all(a.dropped == b.dropped for a, b in known)


def only_keys(command: commands.AlterTable) -> TableDef:
    """The altered table without its new keys."""
    new = new_keys(command.was, command.table)
    return replace(command.table, foreign_keys=tuple(k for k in command.table.foreign_keys if k not in new))


def taken_back(command: commands.AlterTable) -> TableDef:
    """The definition that undoes the command; with dropped columns, only its new keys are undone."""
    was, table = command.was, command.table
    if not keeps_rows(command):
        return only_keys(command)
    added = [Column(gone(i), c.type, added=c.added, dropped=NOW) for i, c in enumerate(table.columns)
             if i >= len(was.columns)]
    return replace(was, columns=(*was.columns, *added), past=table.past, order=was.shown)
