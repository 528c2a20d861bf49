"""CREATE, ALTER and DROP DATABASE.

Keeps true: a database with all its tables and views is dropped in one change.  It is refused if something outside
builds on them.
"""

from __future__ import annotations

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.change import ChangeResult, quoted
from noria.control.ddl.foreign_keys import ForeignKeys
from noria.control.ddl.shadow_views import ShadowViews
from noria.control.ddl.view_changes import ViewChanges
from noria.control.views.readers import ViewReaders
from noria.core.errors import SqlError
from noria.core.errors.codes import DEPENDENT_BY_OTHERS, WRONG_DB_NAME
from noria.dataflow.messages import packets
from noria.plan.mir import tables_of
from noria.sql import commands
from noria.sql.text.databases import Databases, database_exists, no_such_database


class DatabaseChanges:
    """Changes of databases."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, readers: ViewReaders, shadow_views: ShadowViews,
                 views: ViewChanges, keys: ForeignKeys):
        self._keys = keys
        self._catalog, self._sender, self._readers, self._shadow_views = catalog, sender, readers, shadow_views
        self._views = views

    async def create(self, command: commands.CreateDatabase) -> ChangeResult:
        database = command.database
        async with self._sender.lock:
            if self._catalog.databases.get(database.name) is not None:
                error = database_exists(database.name)
                if not command.if_not_exists:
                    raise error
                return ChangeResult((("Note", error.code, error.message),), 1)
            known = self._catalog.databases.having(database)
            before, own = f"{database.name.lower()}.", self._catalog.databases.bare
            if some := [n for n in self._names() if own(n).lower().startswith(before)]:
                raise SqlError(*WRONG_DB_NAME, f"Incorrect database name '{database.name}': names in other databases "
                                               f"begin with it and a dot: {quoted(some)}; rename these first")
            await self._changed(known)
        return ChangeResult((), 1)

    async def alter(self, command: commands.AlterDatabase) -> ChangeResult:
        async with self._sender.lock:
            self._catalog.databases.named(command.database.name)
            await self._changed(self._catalog.databases.having(command.database))
        return ChangeResult((), 1)

    async def _changed(self, databases: Databases) -> None:
        await self._sender.migrate((), self._catalog.recipe(databases=databases))
        self._catalog.databases = databases
        self._catalog.version += 1

    def _names(self) -> list[str]:
        catalog = self._catalog
        return [*(t.name for t in catalog.tables()), *(v.name for v in catalog.views()),
                *(v.name for v in catalog.placeholder_views())]

    # ------------------------------------------------------------ DROP DATABASE
    async def drop(self, command: commands.DropDatabase) -> ChangeResult:
        async with self._sender.lock:
            found = self._catalog.databases.get(command.name)
            if found is None:
                error = no_such_database(command.name)
                if not command.if_exists:
                    raise error
                return ChangeResult((("Note", error.code, error.message),))
            return await self._drop(found.name, command.foreign_key_checks)

    async def _drop(self, database: str, checks: bool) -> ChangeResult:
        catalog = self._catalog
        tables = [n for n, t in catalog.table_defs.items() if self._is_in(t.name, database)]
        views = [n for n, v in catalog.view_defs.items() if self._is_in(v.name, database)]
        placeholders = [n for n, v in catalog.placeholder_defs.items() if self._is_in(v.name, database)]
        self._keys.refuse_dropped([catalog.table_defs[n].name for n in tables], checks)
        self._refuse_if_used(database, tables, views)
        adhoc = catalog.adhoc_over(tables)
        feeds = [n for n in views if catalog.view_defs[n].feed]
        parting = self._readers.plan_removal(views)
        databases = catalog.databases.without(database)
        recipe = catalog.recipe((*views, *placeholders), read=parting.read, databases=databases)
        steps = (*parting.steps, *(packets.DropTable(catalog.table_defs[n].name) for n in tables))
        reply = await self._sender.with_room(steps, recipe, True, crowding=adhoc)
        self._readers.record_removal(parting, views)
        for name in tables:
            catalog.table_defs.pop(name, None)
        catalog.forget_placeholders(placeholders)
        catalog.databases = databases
        catalog.version += 1
        self._readers.start_first_states(reply)
        for name in feeds:
            self._views.on_feed_dropped(name)
        return ChangeResult((), len(tables) + len(views) + len(placeholders))

    def _is_in(self, name: str, database: str) -> bool:
        return self._catalog.databases.split(name)[0] == database

    def _refuse_if_used(self, database: str, tables: list[str], views: list[str]) -> None:
        """Raise an error if a view outside of the database reads its tables or views."""
        catalog = self._catalog
        users = [v.name for n, v in catalog.view_defs.items() if n not in views and (
            catalog.uses[n] & {*views} or {fold(t) for t in tables_of(v.plan)} & {*tables})]
        users += [v.name for v in self._shadow_views.views.values() if {fold(t) for t in tables_of(v.plan)} & {*tables}]
        if users:
            raise SqlError(*DEPENDENT_BY_OTHERS, f"Cannot drop database '{database}': views of other databases read "
                                                 f"it: {quoted(users)}; drop these first")
