"""CREATE, DROP, RENAME and ALTER of tables.

Keeps true: nothing is dropped or changed that a named view needs.  Ad-hoc views are dropped with what they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold
from noria.control.catalog.origin import with_text
from noria.control.catalog.recipe import HistoricalCatalog, SubstituteCatalog, with_change_numbers
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.alterations import loses_unique, lost, refits
from noria.control.ddl.change import ChangeResult, quoted, unknown
from noria.control.ddl.foreign_keys import ForeignKeys, keeps_rows, only_keys, taken_back
from noria.control.ddl.shadow_views import ShadowViews
from noria.core import limits
from noria.core.errors import SqlError, table_exists, unknown_table, view_changed
from noria.core.errors.codes import DEPENDENT_BY_OTHERS, DROP_INDEX_FK, TABLE_DEF_CHANGED, TABLE_EXISTS
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.mir import tables_of
from noria.plan.uses import columns_used
from noria.sql import commands
from noria.sql.parse import parse
from noria.sql.statements.foreign_keys import with_indexed_keys


class TableChanges:
    """Changes of tables whose rows stay where they are."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, shadow_views: ShadowViews, keys: ForeignKeys):
        self._catalog, self._sender, self._shadow_views, self._keys = catalog, sender, shadow_views, keys

    async def create(self, command: commands.CreateTable) -> ChangeResult:
        catalog, name = self._catalog, fold(command.table.name)
        async with self._sender.lock:
            if name in catalog.table_defs and command.if_not_exists:
                return ChangeResult((("Note", TABLE_EXISTS.number, f"Table '{command.table.name}' already exists"),))
            if catalog.taken(name):
                raise table_exists(command.table.name)
            catalog.databases.of(command.table.name)  # it may have been dropped since the statement was parsed
            table = replace(self._keys.created(command), table_id=catalog.next_table_id(), made=catalog.schema)
            await self._sender.migrate((packets.CreateTable(table),), catalog.recipe())
            catalog.table_defs[name] = table
            catalog.version += 1
        return ChangeResult()

    async def drop(self, command: commands.DropTable) -> ChangeResult:
        async with self._sender.lock:
            return await self._drop(command)

    async def _drop(self, command: commands.DropTable) -> ChangeResult:
        catalog = self._catalog
        known = [n for n in command.names if fold(n) in catalog.table_defs]
        warnings = unknown([n for n in command.names if n not in known], command.if_exists)
        gone = {fold(n) for n in known}
        self._keys.refuse_dropped(known, command.foreign_key_checks)
        readers = [v.name for v in (*catalog.views(), *self._shadow_views.views.values())
                   if gone & {fold(t) for t in tables_of(v.plan)}]
        if readers:
            raise SqlError(*DEPENDENT_BY_OTHERS,
                           f"Cannot drop table {quoted(known)}: views read it: {quoted(readers)}; "
                           "drop these first")
        adhoc = catalog.adhoc_over(gone)
        if known:
            steps: list[packets.MigrationStep] = [packets.DropView(catalog.adhoc_defs[n].name) for n in adhoc]
            steps += [packets.DropTable(catalog.table_defs[fold(n)].name) for n in known]
            await self._sender.migrate(steps, catalog.recipe())
            for n in adhoc:
                catalog.forget(n)
            for n in gone:
                catalog.table_defs.pop(n, None)
            catalog.version += 1
        return ChangeResult(warnings)

    async def rename(self, command: commands.RenameTables) -> ChangeResult:
        """Rename tables from left to right, all in one change."""
        async with self._sender.lock:
            return await self._rename(command)

    async def _rename(self, command: commands.RenameTables) -> ChangeResult:
        catalog = self._catalog
        tables, change = dict(catalog.table_defs), catalog.schema + 1
        steps: list[packets.AlterTable] = []
        names: list[tuple[str, str]] = []
        for old, new in command.names:
            was = tables.get(fold(old))
            if was is None:
                raise unknown_table(old)
            if fold(new) in tables or fold(new) in catalog.view_defs or fold(new) in catalog.placeholder_defs:
                raise table_exists(new)
            catalog.databases.of(new)
            del tables[fold(old)]
            table, changed = self._keys.renamed(tables, was, new)
            tables[fold(new)] = with_change_numbers(was, table, change, catalog.as_of.values())
            tables |= {fold(t.name): t for t in changed}
            steps += map(packets.AlterTable, (tables[fold(new)], *changed))
            names.append((was.name, new))
        await self._sender.migrate(steps, catalog.recipe())
        catalog.table_defs = tables
        for old, new in names:
            self._renamed(old, new)
        catalog.version += 1
        return ChangeResult()

    def _renamed(self, table: str, name: str) -> None:
        self._catalog.rename_table(table, name)
        self._shadow_views.rename_table(table, name)

    # ------------------------------------------------------------ ALTER TABLE
    async def fit(self, command: commands.AlterTable) -> None:
        """Check that rows fit another definition; from then on the worker checks written rows, too, until the table
        is redefined.  Raises SqlError for a row that does not fit."""
        if refits(command):
            await self._sender.request(packets.CheckRowsFit(0, command.table))

    async def unfit(self, was: TableDef) -> None:
        """Stop the checks of the table's rows, and drop what was made for another definition."""
        async with self._sender.lock:
            for table in self._catalog.tables():
                if table.table_id == was.table_id:
                    self._sender.unawaited((packets.AlterTable(table),))

    async def alter(self, command: commands.AlterTable) -> ChangeResult:
        """Redefine the table, and wait for its indexes."""
        if not keeps_rows(command):
            await self.refuse_orphans_before(command)
        for attempt in range(limits.FITTING_TRIES):
            self.refuse_if_needed(command)
            try:
                await self.fit(command)
                async with self._sender.lock:
                    altered = await self._alter(command)
            except SqlError as e:
                again = e.code == DROP_INDEX_FK.number or (e.code == TABLE_DEF_CHANGED.number and refits(command))
                if not again or attempt + 1 == limits.FITTING_TRIES:
                    await self.unfit(command.was)
                    raise
                if e.code == DROP_INDEX_FK.number:
                    await self._sender.request(packets.Inspect(0, "looked up", command.was.name))
                continue  # else: a worker restarted, or rows were loaded
            except asyncio.CancelledError:
                await self.unfit(command.was)
                raise
            break
        await self._indexed(altered)
        await self.refuse_orphans(altered)
        return ChangeResult()

    async def _alter(self, command: commands.AlterTable) -> commands.AlterTable:
        """Make the change and return it as made, with the current time in new columns that need it."""
        catalog = self._catalog
        name, to = fold(command.was.name), fold(command.table.name)
        if catalog.table_defs.get(name) != command.was:
            raise view_changed(command.was.name)  # it changed since the statement was planned
        if to != name and catalog.taken(to):
            raise table_exists(command.table.name)
        catalog.databases.of(command.table.name)
        self.refuse_if_needed(command)
        wanted, children = self._keys.altered(command)
        table = with_change_numbers(command.was, wanted, catalog.schema + 1, catalog.as_of.values())
        loses = loses_unique(command.was, table)  # an index that views may look up by
        adhoc = [n for n, v in catalog.adhoc_defs.items()
                 if lost(command, v) or (loses and command.was.name in tables_of(v.plan))]
        drops = tuple(packets.DropView(catalog.adhoc_defs[n].name) for n in adhoc)
        steps = (packets.AlterTable(table), *map(packets.AlterTable, children))
        await self._sender.migrate((*drops, *steps), catalog.recipe())
        for n in adhoc:
            catalog.forget(n)
        del catalog.table_defs[name]
        catalog.table_defs[to] = table
        catalog.table_defs |= {fold(t.name): t for t in children}
        for each in (table, *children):
            catalog.note_altered(each)
        if command.was.name != table.name:
            self._renamed(command.was.name, table.name)
        catalog.version += 1
        return replace(command, table=table)

    async def refuse_orphans_before(self, command: commands.AlterTable) -> None:
        """As `refuse_orphans`, before a change that cannot be taken back completely: of keys over existing columns."""
        if keys := self._keys.to_count(command):
            known = len(command.was.columns)
            await self._keys.refuse_orphans(command.was, [k for k in keys if max(k.columns) < known])

    async def refuse_orphans(self, command: commands.AlterTable,
                             back: Callable[[commands.AlterTable], TableDef] = taken_back) -> None:
        """Count the rows without a parent of the keys that the command has added.  Raises error 1452 if there are any,
        and takes the change back.  back: the definition after that."""
        if not (keys := self._keys.to_count(command)):
            return
        try:
            await self._keys.in_force(command.table)
            await self._keys.loaded(command.table)
            await self._keys.refuse_orphans(command.table, keys)
        except BaseException:
            async with self._sender.lock:
                table = self._catalog.table_defs.get(fold(command.table.name))
                if table == command.table:
                    with with_text(f"foreign keys of {command.table.name} were taken back: rows have no parent"):
                        await self._alter(commands.AlterTable(table, back(command), False))
            raise

    async def _indexed(self, command: commands.AlterTable) -> None:
        """Wait for the table's indexes, which are built in the background; on failure drop them.  The rest of the
        change stays: rows may have new columns already, or UNIQUE may have rejected some."""
        try:
            await self._sender.request(packets.Inspect(0, "indexed", command.table.name))
        except BaseException:
            async with self._sender.lock:
                if self._catalog.table_defs.get(fold(command.table.name)) == command.table:
                    known = {i.columns for i in command.was.indexes}
                    bare = [i for i in command.table.indexes if i.unique or i.columns in known]
                    without = with_indexed_keys(replace(only_keys(command), indexes=tuple(bare)))
                    with with_text(f"indexes of {command.table.name} were taken back: they are not whole"):
                        await self._alter(commands.AlterTable(command.table, without))
            raise

    # ------------------------------------------------------------ refusals
    def refuse_if_needed(self, command: commands.AlterTable, gone: Collection[str] = ()) -> None:
        """Raise an error if the command changes what named views need.  gone: views to ignore."""
        self._refuse_if_read(command, gone)
        self._refuse_if_key_needed(command, gone)

    def _refuse_if_read(self, command: commands.AlterTable, gone: Collection[str]) -> None:
        views = (*(v for n, v in self._catalog.view_defs.items() if n not in gone), *self._shadow_views.views.values())
        needed = [(v.name.partition("\0")[0], c) for v in views for c in lost(command, v)]
        if needed:
            column = command.was.columns[needed[0][1]].name
            readers = dict.fromkeys(v for v, c in needed if c == needed[0][1])
            raise SqlError(*DEPENDENT_BY_OTHERS,
                           f"Cannot change or drop column '{column}' of table '{command.was.name}': "
                           f"views need it: {quoted(readers)}; drop these first, or change them "
                           "and the table at once, with noria apply")

    def _refuse_if_key_needed(self, command: commands.AlterTable, gone: Collection[str]) -> None:
        """Raise an error if a view needs the old primary key or a dropped FULLTEXT key.

        GROUP BY the primary key is only right with it, and MATCH only with its FULLTEXT key.
        """
        searched = {i.columns for i in command.was.fulltext} - {i.columns for i in command.table.fulltext}
        if command.was.keyed == command.table.keyed and not searched:
            return
        keys = "FULLTEXT keys" if searched else "primary key"
        catalog, table_id = self._catalog, command.was.table_id
        tables = {**catalog.table_defs, fold(command.was.name): replace(command.table, name=command.was.name)}
        for name, text in catalog.texts.items():
            view = catalog.view_defs[name]
            if name not in gone and any(b.table.table_id == table_id for b in columns_used(view.plan)):
                try:
                    list(parse(text,
                               HistoricalCatalog(SubstituteCatalog(catalog, tables.values()), catalog.as_of[name])))
                except SqlError as e:
                    raise SqlError(*DEPENDENT_BY_OTHERS,
                                   f"Cannot change the {keys} of table '{command.was.name}': view "
                                   f"'{view.name}' needs it ({e.message}); drop it first") from None
